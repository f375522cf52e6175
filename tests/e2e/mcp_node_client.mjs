// The two lines of the TypeScript SDK, unmodified, against the gateway.  One JSON line on stdout.
// usage: node mcp_node_client.mjs NODE_MODULES URL KEY      (run by e2e_mcp_clients.py)
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [modules, url, key] = process.argv.slice(2);
const require = createRequire(modules + '/');
const load = name => import(pathToFileURL(require.resolve(name)));
const headers = { Authorization: `Bearer ${key}` };
const out = {};

async function use(name, client, transport, list) {
  await client.connect(transport);
  const tools = (await client.listTools()).tools;
  const progress = [];
  const made = await client.callTool({ name: 'exec', arguments: { command: 'echo js > f; cat f; sleep 2' } }, ...list(p => progress.push(p.progress)));
  const again = await client.callTool({ name: 'exec', arguments: { command: 'cat f', sandbox_id: made.structuredContent.sandbox_id } });
  const failed = await client.callTool({ name: 'exec', arguments: { command: 'exit 4' } });
  out[name] = { tools: tools.length, stdout: made.structuredContent.stdout, again: again.structuredContent.stdout,
                isError: failed.isError, exitCode: failed.structuredContent.exit_code, progress: progress.length };
  await client.close();
}

const v1 = await load('@modelcontextprotocol/sdk/client/index.js');
const v1http = await load('@modelcontextprotocol/sdk/client/streamableHttp.js');
await use('sdk', new v1.Client({ name: 'e2e', version: '1' }),
          new v1http.StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }), f => [undefined, { onprogress: f }]);

const v2 = await load('@modelcontextprotocol/client');
for (const mode of ['legacy', 'auto']) {
  await use(`client-${mode}`, new v2.Client({ name: 'e2e', version: '1' }, { versionNegotiation: { mode } }),
            new v2.StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }), f => [{ onprogress: f }]);
}
console.log(JSON.stringify(out));
