// The interop cases that differ between client stacks, with @grpc/grpc-js against interop_server.
// usage: node interop_client.js PORT PROTO_DIR [CA]   (run with NODE_PATH at the tools)
'use strict';
const assert = require('assert');
const fs = require('fs');
const path = require('path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const [port, protoDir, ca] = process.argv.slice(2);
const def = loader.loadSync(path.join(protoDir, 'interop.proto'), {keepCase: true});
const {TestService, UnimplementedService} = grpc.loadPackageDefinition(def).grpc.testing;
const creds = () => ca ? grpc.credentials.createSsl(fs.readFileSync(ca)) : grpc.credentials.createInsecure();
const client = new TestService(`localhost:${port}`, creds());
const nobody = new UnimplementedService(`localhost:${port}`, creds());

const body = (n) => ({body: Buffer.alloc(n)});
const unary = (method, req, meta, opt, c = client) => new Promise((ok, fail) =>
  c[method](req, meta || new grpc.Metadata(), opt || {}, (e, r) => e ? fail(e) : ok(r)));
const fails = async (code, p) => {
  let error = null;
  try { await p; } catch (e) { error = e; }
  assert(error, 'wanted an error');
  assert.strictEqual(error.code, code, `${error.code} ${error.details}`);
  return error;
};
const collect = (stream, onData) => new Promise((ok, fail) => {
  const got = [];
  stream.on('data', (r) => { got.push(r.payload.body.length); if (onData) onData(got); });
  stream.on('error', fail);
  stream.on('end', () => ok(got));
});

const cases = {
  async empty_unary() { await unary('EmptyCall', {}); },
  async large_unary() {
    const r = await unary('UnaryCall', {response_size: 314159, payload: body(271828)});
    assert.strictEqual(r.payload.body.length, 314159);
  },
  async server_compressed_unary() {
    const r = await unary('UnaryCall', {response_size: 314159, response_compressed: {value: true}});
    assert.strictEqual(r.payload.body.length, 314159);
  },
  async client_compressed_unary() {
    const gz = new TestService(`localhost:${port}`, creds(), {'grpc.default_compression_algorithm': 2});
    await unary('UnaryCall', {response_size: 1, payload: body(271828), expect_compressed: {value: true}}, null, null, gz);
    gz.close();
  },
  async client_streaming() {
    const r = await new Promise((ok, fail) => {
      const call = client.StreamingInputCall((e, v) => e ? fail(e) : ok(v));
      for (const n of [27182, 8, 1828, 45904]) call.write({payload: body(n)});
      call.end();
    });
    assert.strictEqual(r.aggregated_payload_size, 74922);
  },
  async server_streaming() {
    const sizes = [31415, 9, 2653, 58979];
    const got = await collect(client.StreamingOutputCall({response_parameters: sizes.map((size) => ({size}))}));
    assert.deepStrictEqual(got, sizes);
  },
  async ping_pong() {
    const sizes = [31415, 9, 2653, 58979];
    const call = client.FullDuplexCall();
    const ask = (i) => i < sizes.length ? call.write({response_parameters: [{size: sizes[i]}]}) : call.end();
    const done = collect(call, (got) => ask(got.length));
    ask(0);
    assert.deepStrictEqual(await done, sizes);
  },
  async empty_stream() {
    const call = client.FullDuplexCall();
    const done = collect(call);
    call.end();
    assert.deepStrictEqual(await done, []);
  },
  async custom_metadata() {
    const meta = new grpc.Metadata();
    meta.set('x-grpc-test-echo-initial', 'test_initial_metadata_value');
    meta.set('x-grpc-test-echo-trailing-bin', Buffer.from('ababab', 'hex'));
    let initial, status;
    await new Promise((ok, fail) => {
      const call = client.UnaryCall({response_size: 1}, meta, (e) => { if (e) fail(e); });
      call.on('metadata', (m) => { initial = m; });
      call.on('status', (s) => { status = s; ok(); });
    });
    assert.deepStrictEqual(initial.get('x-grpc-test-echo-initial'), ['test_initial_metadata_value']);
    assert.strictEqual(status.metadata.get('x-grpc-test-echo-trailing-bin')[0].toString('hex'), 'ababab');
  },
  async status_code_and_message() {
    const e = await fails(2, unary('UnaryCall', {response_status: {code: 2, message: 'test status message'}}));
    assert.strictEqual(e.details, 'test status message');
  },
  async special_status_message() {
    const message = '\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \u{1F608}\t\n';
    const e = await fails(2, unary('UnaryCall', {response_status: {code: 2, message}}));
    assert.strictEqual(e.details, message);
  },
  async unimplemented() {
    await fails(12, unary('UnimplementedCall', {}));
    await fails(12, unary('UnimplementedCall', {}, null, null, nobody));
  },
  async cancel_after_first_response() {
    const call = client.FullDuplexCall();
    const done = collect(call, () => call.cancel());
    call.write({response_parameters: [{size: 31415}]});
    await fails(1, done);
  },
  async timeout_on_sleeping_server() {
    const call = client.FullDuplexCall(new grpc.Metadata(), {deadline: Date.now() + 20});
    const done = collect(call);
    call.write({payload: body(27182)});
    await fails(4, done);
  },
  async too_big() {
    await fails(8, unary('UnaryCall', {response_size: 1, payload: body(5 << 20)}));
    await fails(8, unary('UnaryCall', {response_size: 5 << 20}));
  },
  async concurrent_large_unary() {
    const all = Array.from({length: 200}, () => unary('UnaryCall', {response_size: 314159, payload: body(271828)}));
    for (const r of await Promise.all(all)) assert.strictEqual(r.payload.body.length, 314159);
  },
};

(async () => {
  let failed = 0;
  for (const [name, fn] of Object.entries(cases)) {
    try {
      await fn();
      console.log('ok', name);
    } catch (e) {
      failed++;
      console.log('FAILED', name, e);
    }
  }
  console.log(`${Object.keys(cases).length - failed} of ${Object.keys(cases).length} cases pass`);
  client.close();
  nobody.close();
  process.exitCode = failed ? 1 : 0;
})();
