// Templates built by E2B's JavaScript SDK, unmodified.  One JSON line on stdout.
// usage: node e2b_template_client.mjs NODE_MODULES BASE      (run by e2e_e2b.py; E2B_* say where)
import fs from 'node:fs'
import { createRequire } from 'node:module'
import os from 'node:os'
import path from 'node:path'

const [modules, base] = process.argv.slice(2)
const { Sandbox, Template, waitForFile } = createRequire(modules + '/')('e2b')
const out = {}

async function raised(promise) {
  try {
    await promise
  } catch (e) {
    return [e.constructor.name, e.message]
  }
}

const root = fs.mkdtempSync(path.join(os.tmpdir(), 'template-'))
fs.mkdirSync(path.join(root, 'src'))
fs.writeFileSync(path.join(root, 'src', 'a.txt'), 'a')
for (const name of ['one', 'two', 'three']) fs.writeFileSync(path.join(root, name), name)

// Several archives, which this SDK sends at once.
const lines = []
const template = Template({ fileContextPath: root })
  .fromTemplate(base)
  .setEnvs({ GREETING: 'hello' })
  .setWorkdir('/home/user/app')
  .copy('src', 'lib/')
  .copy(['one', 'two', 'three'], 'many/')
  .runCmd('cat many/* > all; echo built')
  .setStartCmd('echo begins; sleep 1; touch /tmp/begun; sleep 100000', waitForFile('/tmp/begun'))
const built = await Template.build(template, 'my-node-app', { onBuildLogs: (line) => lines.push(line.message) })
out.built = [built.name, built.templateId]
out.log = ['] RUN cat many', 'built', 'begins', 'is ready'].map((want) => lines.some((line) => line.includes(want)))
out.exists = [await Template.exists('my-node-app'), await Template.exists('not-there')]
const sandbox = await Sandbox.create('my-node-app', { timeoutMs: 200000 })
out.used = (await sandbox.commands.run('pwd; echo $GREETING; cat lib/a.txt all; ls /tmp/begun')).stdout
out.info = (await sandbox.getInfo()).templateId
await sandbox.kill()
out.fails = await raised(Template.build(Template().fromTemplate(base).runCmd('echo why >&2; exit 3'), 'bad'))
out.unknown = await raised(Template.getBuildStatus({ templateId: 'my-node-app', buildId: 'not-one' }))
out.deleted = [await Sandbox.deleteSnapshot('my-node-app'), await Template.exists('my-node-app')]
console.log(JSON.stringify(out))
process.exit(0)
