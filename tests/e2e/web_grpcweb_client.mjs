// Google's own client of gRPC-Web, unmodified, in its text form against the gateway; xhr2 is its XMLHttpRequest here.
// One JSON line on stdout.
//
// usage: node web_grpcweb_client.mjs MODULES DESCRIPTOR_SET URL KEY      (run by e2e_web.py)
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
const [modules, set, url, key] = process.argv.slice(2)
const require = createRequire(modules + '/')
globalThis.XMLHttpRequest = require('xhr2')
const { create, createFileRegistry, fromBinary, toBinary } = require('@bufbuild/protobuf')
const { FileDescriptorSetSchema } = require('@bufbuild/protobuf/wkt')
const { GrpcWebClientBase, MethodDescriptor, MethodType } = require('grpc-web')

const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(set)))
const client = new GrpcWebClientBase({ format: 'text' })
function methodOf(service, name) {
  const method = registry.getService(`cloche.v1.${service}`).methods.find((m) => m.name === name)
  const type = method.methodKind === 'unary' ? MethodType.UNARY : MethodType.SERVER_STREAMING
  return [`${url}/cloche.v1.${service}/${name}`, method.input, new MethodDescriptor(`/cloche.v1.${service}/${name}`, type, Object, Object,
    (message) => toBinary(method.input, message), (bytes) => fromBinary(method.output, bytes))]
}
function one(service, name, request, credential = key) {
  const [at, input, descriptor] = methodOf(service, name)
  return client.unaryCall(at, create(input, request), { Authorization: `Bearer ${credential}` }, descriptor)
}
function all(service, name, request) {
  const [at, input, descriptor] = methodOf(service, name)
  return new Promise((resolve, reject) => {
    const got = []
    client.serverStreaming(at, create(input, request), { Authorization: `Bearer ${key}` }, descriptor)
      .on('data', (message) => got.push(message)).on('error', reject).on('end', () => resolve(got))
  })
}
const caught = (promise) => promise.then((x) => x, (e) => [e.code, e.message, Object.keys(e.metadata ?? {}).includes('grpc-status-details-bin')])

const out = {}
out.who = (await one('TenantService', 'WhoAmI', {})).tenant
const events = await all('JobService', 'Run', { spec: { template: 'base', command: { argv: ['sh', '-c', 'echo ü; exit 3'] } } })
out.run = [events.map((e) => e.event.case), Buffer.concat(events.filter((e) => e.event.case === 'output').map((e) => e.event.value.data)).toString(),
  events.at(-1).event.value.result.exitCode]
out.unknown = await caught(one('JobService', 'Get', { jobId: 'job_0123456789abcdefghjkmnpqrs' }))
out.unknownStream = (await caught(all('JobService', 'Watch', { jobId: 'job_0123456789abcdefghjkmnpqrs' }))).slice(0, 2)
out.stranger = (await caught(one('JobService', 'List', {}, 'clk_0123456789abcdef_' + '0'.repeat(64))))[0]
console.log(JSON.stringify(out))
process.exit(0)
