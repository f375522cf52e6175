// connect-web, unmodified, against the gateway: no generated code, the services are those of a descriptor set.
// One JSON line on stdout.
//
// usage: node web_connect_client.mjs MODULES DESCRIPTOR_SET URL KEY json|proto|grpc-json|grpc-proto      (run by e2e_web.py)
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
const [modules, set, baseUrl, key, form] = process.argv.slice(2)
const require = createRequire(modules + '/')
const { createFileRegistry, fromBinary } = require('@bufbuild/protobuf')
const { FileDescriptorSetSchema } = require('@bufbuild/protobuf/wkt')
const { createClient, ConnectError, Code } = require('@connectrpc/connect')
const { createConnectTransport, createGrpcWebTransport } = require('@connectrpc/connect-web')
const createTransport = form.startsWith('grpc-') ? createGrpcWebTransport : createConnectTransport

const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(set)))
function clientOf(name, credential = key) {
  const interceptors = [(next) => (req) => {
    req.header.set('Authorization', `Bearer ${credential}`)
    return next(req)
  }]
  const transport = createTransport({ baseUrl, interceptors, useBinaryFormat: form.endsWith('proto') })
  return createClient(registry.getService(`cloche.v1.${name}`), transport)
}
async function caught(promise) {
  try {
    return await promise
  } catch (e) {
    return e instanceof ConnectError ? [Code[e.code], e.rawMessage, e.details.map((d) => d.type)] : String(e)
  }
}
async function all(stream) {
  const out = []
  for await (const message of stream) out.push(message)
  return out
}
const text = (messages, stream) =>
  Buffer.concat(messages.filter((m) => m.event.case === 'output' && m.event.value.stream === stream).map((m) => m.event.value.data)).toString()

const out = {}
const jobs = clientOf('JobService'), boxes = clientOf('SandboxService'), execs = clientOf('ExecService')
out.who = (await clientOf('TenantService').whoAmI({})).tenant

const events = await all(jobs.run({ spec: { template: 'base', command: { argv: ['sh', '-c', 'echo ü; echo no >&2; exit 3'] } } }))
out.run = [events.map((e) => e.event.case).filter((c) => c !== 'output'), text(events, 1), text(events, 2), events.at(-1).event.value.result.exitCode]
const id = events[0].event.value.jobId
out.job = [(await jobs.get({ jobId: id })).job.state, (await jobs.list({ pageSize: 1 })).jobs.length]
out.watch = text(await all(jobs.watch({ jobId: id })), 1)
out.unknown = await caught(jobs.get({ jobId: 'job_0123456789abcdefghjkmnpqrs' }))
out.unknownStream = await caught(all(jobs.watch({ jobId: 'job_0123456789abcdefghjkmnpqrs' })))
out.stranger = (await caught(clientOf('JobService', 'clk_0123456789abcdef_' + '0'.repeat(64)).list({})))[0]

const { sandbox } = await boxes.create({ template: 'base', ttlNs: 300_000_000_000n })
out.big = sandbox.expires.unixNs > 1_700_000_000_000_000_000n
const { execId } = await execs.start({ sandboxId: sandbox.id, command: { argv: ['sh', '-c', 'head -c 3000000 /dev/zero; sleep 600'] } })
const leave = new AbortController()
let bytes = 0
out.left = (await caught((async () => {
  for await (const m of execs.attach({ sandboxId: sandbox.id, execId }, { signal: leave.signal })) {
    bytes += m.event.value.data.length
    if (bytes >= 3_000_000) leave.abort()
  }
})()))[0]
out.bytes = bytes
out.running = (await execs.list({ sandboxId: sandbox.id })).execs.map((e) => e.running)
out.late = (await caught(execs.wait({ sandboxId: sandbox.id, execId }, { timeoutMs: 300 })))[0]
await boxes.kill({ sandboxId: sandbox.id })
out.gone = (await boxes.get({ sandboxId: sandbox.id })).sandbox.state
console.log(JSON.stringify(out))
process.exit(0)
