// E2B's JavaScript SDKs, unmodified, against the gateway.  One JSON line on stdout.
//
// usage: node e2b_node_client.mjs MODULES TEMPLATE      (run by e2e_e2b.py; E2B_* say where)
import { createHash, randomBytes } from 'node:crypto'
import http from 'node:http'
import { createRequire } from 'node:module'
const [modules, template] = process.argv.slice(2)
const require = createRequire(modules + '/')
const { Sandbox } = require('@e2b/code-interpreter')

async function caught(promise) {
  try {
    await promise
  } catch (e) {
    return `${e.constructor.name}: ${e.message}`
  }
  return null
}

const out = {}
const s = await Sandbox.create(template, { timeoutMs: 300_000, metadata: { userId: 'n ü' }, envs: { OF_BOX: 'a' } })
let seen = ''
const r = await s.commands.run('echo out; echo err >&2; echo $OF_BOX', { onStdout: (d) => (seen += d) })
out.run = [r.stdout, r.stderr, r.exitCode, seen]
out.failing = await caught(s.commands.run('exit 3'))
const handle = await s.commands.run('cat; echo end', { background: true, stdin: true, timeoutMs: 0 })
out.listed = (await s.commands.list()).some((p) => p.pid === handle.pid)
await s.commands.sendStdin(handle.pid, 'one\n')
await s.commands.closeStdin(handle.pid)
out.stdin = (await handle.wait()).stdout
const sleeper = await s.commands.run('sleep 600', { background: true, timeoutMs: 0 })
out.killed = [await s.commands.kill(sleeper.pid), await s.commands.kill(sleeper.pid)]
out.write = (await s.files.write('a/b.txt', 'hello')).path
out.read = [await s.files.read('a/b.txt'), (await s.files.list('a')).map((e) => e.name)]
const data = randomBytes(50 << 20)
const digest = createHash('sha256').update(data).digest('hex')
out.large = []
for (const body of [data.buffer, new Blob([data]).stream()]) { // a form; a body that is streamed
  await s.files.write('large', body)
  const back = createHash('sha256').update(await s.files.read('large', { format: 'bytes' })).digest('hex')
  out.large.push([back === digest, (await s.commands.run('sha256sum large')).stdout.includes(digest)])
}
await s.files.remove('large')
out.exists = [await s.files.exists('a'), await s.files.exists('nothing')]
out.make = [await s.files.makeDir('new'), await s.files.makeDir('new')]
out.gone = await caught(s.files.read('nothing'))
const cell = await s.runCode('x = 41\nprint("out")\nx + 1')
out.cell = [cell.text, cell.logs.stdout, (await s.runCode('x += 1; x')).text]
out.exception = (await s.runCode('1 / 0')).error?.name
out.envs = []
for (const envs of [{ OF_CELL: "c 'ü\n" }, undefined]) out.envs.push((await s.runCode("import os; str(os.environ.get('OF_CELL'))", { envs })).text)
const context = await s.createCodeContext({ cwd: '/tmp' })
out.context = (await s.runCode('import os; os.getcwd()', { context })).text
const found = await Sandbox.list({ query: { metadata: { userId: 'n ü' } } }).nextItems()
out.found = found.map((i) => i.sandboxId).includes(s.sandboxId) && found.length === 1
out.running = await s.isRunning()
await s.setTimeout(600_000)
const other = await Sandbox.connect(s.sandboxId)
out.connect = await other.files.read('a/b.txt')
await s.runCode('kept = 41')
await s.files.write('/tmp/kept', 'a file')
const counter = await s.commands.run('while :; do date +%s%N > /tmp/c; mv /tmp/c /tmp/count; sleep 0.2; done', { background: true, timeoutMs: 0 })
while (!(await s.files.exists('/tmp/count'))) await new Promise((done) => setTimeout(done, 100))
async function states(...state) {
  const pages = Sandbox.list({ query: { metadata: { userId: 'n ü' }, state } })
  const items = await pages.nextItems()
  return items.map((i) => i.sandboxId === s.sandboxId && i.state)
}
const server = await s.commands.run(`python3 -c "
import socket
l = socket.create_server(('127.0.0.1', 8080))
while True:
    c, _ = l.accept()
    c.recv(65536)
    c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\n\\r\\nhello')
    c.close()
"`, { background: true, timeoutMs: 0 })
function fetchPort() { // the name leads to this machine, whatever the resolver here says of names below localhost
  const at = new URL(process.env.E2B_API_URL)
  return new Promise((done, fail) => http.get({ host: at.hostname, port: at.port, headers: { host: s.getHost(8080) } }, (answer) => {
    let body = ''
    answer.on('data', (d) => (body += d))
    answer.on('end', () => done(`${answer.statusCode} ${body}`))
  }).on('error', fail))
}
while (!(out.host = await fetchPort()).startsWith('200')) await new Promise((done) => setTimeout(done, 200))
await server.kill()
await s.files.makeDir('watched/deep')
const events = []
const watch = await s.files.watchDir('watched', (e) => events.push([e.type, e.name]), { recursive: true })
await s.files.write('watched/deep/a', 'hello')
await s.commands.run('chmod 600 watched/deep/a; mv watched/deep/a watched/b; echo more >> watched/b; rm watched/b; mkdir watched/end')
while (!events.some((e) => e[1] === 'end')) await new Promise((done) => setTimeout(done, 50))
out.watched = events
await watch.stop()
const metrics = await s.getMetrics()
const metric = metrics.at(-1)
out.metrics = [metric.cpuCount, metric.cpuUsedPct >= 0 && metric.cpuUsedPct <= 100, metric.memUsed > 0 && metric.memUsed < metric.memTotal, metric.memCache > 0,
  metric.diskUsed > 0 && metric.diskUsed < metric.diskTotal, metric.timestamp instanceof Date]
out.metricsWhen = [(await s.getMetrics({ start: new Date(Date.now() + 3600_000) })).length, (await s.getMetrics({ end: new Date(Date.now() + 3600_000) })).length >= metrics.length]
out.pause = [await s.pause(), await s.pause()]
out.metricsAtRest = (await Sandbox.getMetrics(s.sandboxId)).length >= metrics.length
out.paused = [(await s.getInfo()).state, await s.isRunning(), await states('paused'), await states('running'), await states('running', 'paused')]
out.atRest = [await caught(s.commands.run('true')), await caught(s.files.read('/tmp/kept')), await caught(s.runCode('kept'))].map((e) => e?.split(':')[0])
const again = await Sandbox.connect(s.sandboxId, { timeoutMs: 120_000 })
const count = await again.files.read('/tmp/count')
await new Promise((done) => setTimeout(done, 1000))
out.resumed = [(await again.runCode('kept + 1')).text, await again.files.read('/tmp/kept'), (await again.commands.list()).some((p) => p.pid === counter.pid),
  (await again.files.read('/tmp/count')) !== count, (await again.getInfo()).state]
out.again = [await Sandbox.pause(s.sandboxId), await s.kill(), await Sandbox.kill(s.sandboxId)]
out.pauseOfNothing = (await caught(Sandbox.pause(s.sandboxId)))?.split(':')[0]
out.dead = [await s.kill(), await s.isRunning(), await s.kill()]
console.log(JSON.stringify(out))
process.exit(0) // a command that was refused leaves the SDK's timer of a minute
