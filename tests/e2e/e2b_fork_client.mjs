// Forks by E2B's JavaScript SDKs, unmodified, for a tenant with room for four sandboxes.  One JSON line on stdout.
//
// usage: node e2b_fork_client.mjs MODULES TEMPLATE      (run by e2e_e2b.py; E2B_* say where)
import { createRequire } from 'node:module'
const [modules, template] = process.argv.slice(2)
const require = createRequire(modules + '/')
const { Sandbox } = require('@e2b/code-interpreter')

const wait = (ms) => new Promise((done) => setTimeout(done, ms))
async function caught(promise) {
  try {
    await promise
  } catch (e) {
    return `${e.constructor.name}: ${e.message}`
  }
  return null
}
async function moves(box) {
  const first = await box.files.read('/tmp/count')
  for (let i = 0; i < 150; i++) {
    if ((await box.files.read('/tmp/count')) !== first) return true
    await wait(200)
  }
  return false
}

const out = {}
const s = await Sandbox.create(template, { timeoutMs: 300_000, metadata: { userId: 'n ü' } })
await s.runCode('x = 41')
await s.files.write('file', 'kept')
await s.commands.run('while :; do date +%s%N > /tmp/c; mv /tmp/c /tmp/count; sleep 0.3; done', { background: true, timeoutMs: 0 })
while (!(await s.files.exists('/tmp/count'))) await wait(100)
const forks = await s.fork({ count: 3, timeoutMs: 200_000 })
const all = [s, ...forks]
out.forks = [forks.map((f) => f instanceof Sandbox), new Set(all.map((f) => f.sandboxId)).size]
out.has = []
for (const f of all) out.has.push([await f.files.read('file'), (await f.runCode('x + 1')).text, await moves(f)])
for (const [i, f] of forks.entries()) {
  await f.files.write('file', `of ${i}`)
  await f.runCode(`x = ${i}`)
}
out.apart = []
for (const f of all) out.apart.push([await f.files.read('file'), (await f.runCode('x')).text])
out.metadata = (await forks[2].getInfo()).metadata
out.full = (await s.fork({ count: 2 })).map((f) => f.constructor.name)
await forks[0].kill()
const mixed = await Sandbox.fork(s.sandboxId, { count: 3, timeoutMs: 60_000 })
out.mixed = mixed.map((f) => (f instanceof Sandbox ? 'sandbox' : f.constructor.name)).sort()
for (const f of [...forks.slice(1), ...mixed]) if (f instanceof Sandbox) await f.kill()
await s.pause()
const [resting] = await s.fork({ timeoutMs: 60_000 })
out.paused = [(await resting.runCode('x')).text, await resting.kill(), (await s.getInfo()).state]
out.unknown = (await caught(Sandbox.fork('sbx_00000000000000000000000000')))?.split(':')[0]
out.killed = await s.kill()
console.log(JSON.stringify(out))
process.exit(0) // a background command leaves the SDK's stream open
