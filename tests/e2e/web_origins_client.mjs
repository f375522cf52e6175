// Pages of other origins, in Chromium: what their scripts may ask of the gateway and read.  One JSON line on stdout: {ORIGIN: {WHAT: [STATUS, VALUE] or ERROR}}.
//
// usage: node web_origins_client.mjs MODULES CHROMIUM URL KEY PORT NAME...      (run by e2e_web.py; http://NAME:PORT serves an empty page)
import { createRequire } from 'node:module'
const [modules, executablePath, url, key, port, ...names] = process.argv.slice(2)
const { chromium } = createRequire(modules + '/')('playwright-core')

const rules = names.filter((n) => n !== 'localhost').map((n) => `MAP ${n} 127.0.0.1`).join(', ')
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage', `--host-resolver-rules=${rules}`] })
const out = {}

async function ask([url, key]) { // in the page
  const seen = {}
  const json = { 'Content-Type': 'application/json' }
  const bearer = { ...json, Authorization: `Bearer ${key}` }
  const attempt = async (what, path, init, read) => {
    try {
      const r = await fetch(url + path, init)
      seen[what] = [r.status, await read(r)]
    } catch (e) {
      seen[what] = String(e)
    }
  }
  const post = (headers, body) => ({ method: 'POST', headers, body: JSON.stringify(body) })
  await attempt('services', '/cloche.v1.TenantService/WhoAmI', post({ ...bearer, 'Connect-Protocol-Version': '1', traceparent: `00-${'1'.repeat(32)}-${'2'.repeat(16)}-01` }, {}),
    async (r) => (await r.json()).tenant)
  await attempt('a stream', '/cloche.v1.JobService/Run', post(bearer, { spec: { template: 'base', command: { argv: ['echo', 'hi'] } } }),
    async (r) => (await r.text()).includes(btoa('hi\n')))
  await attempt('without a key', '/cloche.v1.TenantService/WhoAmI', post(json, {}), async (r) => (await r.json()).code)
  await attempt('what is not there', '/nowhere', post(bearer, {}), async (r) => (await r.text()).length > 0)
  const hello = { jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'page', version: '1' } } }
  let session = ''
  await attempt('MCP', '/mcp', post({ ...bearer, Accept: 'application/json, text/event-stream' }, hello), async (r) => {
    session = r.headers.get('Mcp-Session-Id')
    return Boolean(session && (await r.text()).includes('serverInfo'))
  })
  const there = { ...bearer, Accept: 'application/json, text/event-stream', 'Mcp-Session-Id': session, 'MCP-Protocol-Version': '2025-11-25' }
  await attempt('MCP, its end', '/mcp', { method: 'DELETE', headers: there }, async (r) => r.ok)
  await attempt('E2B', '/v2/sandboxes', { headers: { 'X-API-Key': key, 'package-version': '1', browser: 'chrome' } }, async (r) => Array.isArray(await r.json()))
  return seen
}

for (const name of names) {
  const page = await (await browser.newContext()).newPage()
  await page.goto(`http://${name}:${port}/`)
  out[name] = await page.evaluate(ask, [url, key])
}
console.log(JSON.stringify(out))
await browser.close()
