// Snapshots by E2B's JavaScript SDKs, unmodified, for a tenant with room for three sandboxes.  One JSON line on stdout.
//
// usage: node e2b_snapshot_client.mjs MODULES TEMPLATE      (run by e2e_e2b.py; E2B_* say where)
import { createRequire } from 'node:module'
const [modules, template] = process.argv.slice(2)
const require = createRequire(modules + '/')
const { Sandbox } = require('@e2b/code-interpreter')

const wait = (ms) => new Promise((done) => setTimeout(done, ms))
async function caught(promise) {
  try {
    await promise
  } catch (e) {
    return [e.constructor.name, e.statusCode ?? null, e.message]
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
async function allOf(pages) {
  const found = []
  while (pages.hasNext) found.push(...(await pages.nextItems()))
  return found.map((i) => [i.snapshotId, ...i.names])
}

const out = {}
const s = await Sandbox.create(template, { timeoutMs: 300_000, metadata: { userId: 'n ü' } })
await s.runCode('x = 41')
await s.files.write('file', 'kept')
await s.commands.run('while :; do date +%s%N > /tmp/c; mv /tmp/c /tmp/count; sleep 0.3; done', { background: true, timeoutMs: 0 })
while (!(await s.files.exists('/tmp/count'))) await wait(100)
const snap = await s.createSnapshot({ name: 'ready-js' })
out.made = [snap.snapshotId.startsWith('snp_'), snap.names]
await s.files.write('file', 'later')
await s.runCode('x = 1')
const both = [await Sandbox.create(snap.snapshotId, { timeoutMs: 200_000, envs: { OF_NEW: 'b' } }), await Sandbox.create('ready-js', { timeoutMs: 200_000 })]
out.has = []
for (const b of both) out.has.push([await b.files.read('file'), (await b.runCode('x + 1')).text, await moves(b)])
await both[0].files.write('file', 'of the first')
out.apart = [await both[1].files.read('file'), await s.files.read('file'), (await s.runCode('x')).text]
out.env = (await both[0].commands.run('echo $OF_NEW')).stdout
out.info = [(await both[0].getInfo()).templateId === (await s.getInfo()).templateId, (await both[0].getInfo()).metadata]
const other = await Sandbox.createSnapshot(both[0].sandboxId)
const pages = Sandbox.listSnapshots({ limit: 1 })
const firstPage = await pages.nextItems()
out.listed = [
  JSON.stringify(await allOf(s.listSnapshots())) === JSON.stringify([[snap.snapshotId, 'ready-js']]),
  JSON.stringify(await allOf(Sandbox.listSnapshots({ sandboxId: both[0].sandboxId }))) === JSON.stringify([[other.snapshotId]]),
  [firstPage.length, pages.hasNext, (await pages.nextItems()).length, pages.hasNext],
  await allOf(Sandbox.listSnapshots({ name: 'nobody' })),
]
for (const b of both) await b.kill()
const newer = await s.createSnapshot({ name: 'ready-js' })
const again = await Sandbox.create('ready-js', { timeoutMs: 60_000 })
out.replaced = [newer.snapshotId !== snap.snapshotId, newer.names, await again.files.read('file'), await again.kill()]
out.badName = await caught(s.createSnapshot({ name: 'No Name' }))
out.killed = await s.kill()
const last = await Sandbox.create(newer.snapshotId, { timeoutMs: 60_000 })
out.outlives = [await last.files.read('file'), (await last.runCode('x')).text, await last.kill()]
out.deleted = []
for (const id of [newer.snapshotId, newer.snapshotId, snap.snapshotId, other.snapshotId]) out.deleted.push(await Sandbox.deleteSnapshot(id))
out.gone = []
for (const word of [newer.snapshotId, 'ready-js']) out.gone.push((await caught(Sandbox.create(word)))?.slice(0, 2))
out.left = await allOf(Sandbox.listSnapshots())
out.ofNothing = (await caught(Sandbox.createSnapshot(s.sandboxId)))?.[0]
console.log(JSON.stringify(out))
process.exit(0) // a background command leaves the SDK's stream open
