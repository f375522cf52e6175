// Chromium on the dashboard, as a person would use it.  One JSON line on stdout.
//
// usage: node web_browser_client.mjs MODULES CHROMIUM URL KEY FOLDER      (run by e2e_web.py; FOLDER gets pictures)
import { createRequire } from 'node:module'
const [modules, executablePath, url, key, folder] = process.argv.slice(2)
const { chromium } = createRequire(modules + '/')('playwright-core')

const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] })
const context = await browser.newContext({ viewport: { width: 1280, height: 900 } })
context.setDefaultTimeout(Number(process.env.PATIENCE_MS ?? 60000))
const page = await context.newPage()
const out = { errors: [], elsewhere: [] }
page.on('pageerror', (e) => out.errors.push(String(e)))
page.on('console', (m) => m.type() === 'error' && out.errors.push(`${m.text()} ${m.location().url}`))
page.on('request', (r) => r.url().startsWith(url) || out.elsewhere.push(r.url()))
page.on('dialog', (d) => d.accept())
const shot = (name) => page.screenshot({ path: `${folder}/${name}.png`, fullPage: true })
const press = (where, name) => where.getByRole('button', { name, exact: true }).click()
const notice = () => page.textContent('#notice')
process.on('uncaughtException', async (e) => { // what was on the page when it went wrong
  console.error(e.message, '\n', out, '\n', await page.innerText('body').catch(String))
  await browser.close()
  process.exit(1)
})

// --- signing in: a wrong key, then the right one
await page.goto(url)
await page.fill('input[name=key]', 'clk_0123456789abcdef_' + '0'.repeat(64))
await page.click('button.primary')
await page.waitForSelector('#notice.bad')
out.wrong = await notice()
await page.fill('input[name=key]', key)
await page.click('button.primary')
await page.waitForSelector('nav a[aria-current=page]')
out.who = await page.textContent('.who strong')
await page.locator('.tile').first().waitFor()
out.tiles = await page.locator('.tile').count()
out.errors = out.errors.filter((e) => !e.includes('401')) // the browser's own word on the wrong key

// --- a sandbox, a command in it that means harm to who looks at it
await page.waitForSelector('select[name=template] option[value=base]', { state: 'attached' })
await page.selectOption('select[name=template]', 'base')
await press(page, 'New sandbox')
await page.locator('h2', { hasText: 'sbx_' }).waitFor()
await page.waitForSelector('.badge.running')
out.id = await page.textContent('section h2')
const evil = '<img src=x onerror=alert(1)><script>document.title="owned"</script>'
await page.fill('input[name=command]', `printf '%s\\033[31m\\n' '${evil}'; echo to-err >&2; exit 3`)
await press(page, 'Run')
await page.waitForSelector('.output .end')
out.output = await page.textContent('.output')
out.exit = await page.textContent('.output .end')
out.elements = await page.locator('.output img, .output script, td img').count()
out.title = await page.title()
await page.waitForSelector('table[aria-label=Commands] tbody tr')
out.command = await page.textContent('td.command')
await page.waitForSelector('.chart')

// --- files: one goes up, and comes down as it was
await page.click('summary')
const bytes = Buffer.from(Array.from({ length: 200000 }, (_, i) => (i * 7) & 255))
await page.setInputFiles('input[type=file]', { name: 'a b.bin', mimeType: 'application/octet-stream', buffer: bytes })
const [down] = await Promise.all([page.waitForEvent('download'), press(page, 'a b.bin')])
const { readFileSync } = await import('node:fs')
out.file = [down.suggestedFilename(), readFileSync(await down.path()).equals(bytes)]
await press(page, 'Up')
await page.getByRole('button', { name: 'user/', exact: true }).waitFor()
out.folder = await page.textContent('details code')
await shot('sandbox')

// --- a server in it
const server = '$s = IO::Socket::INET->new(LocalAddr => "127.0.0.1:8000", Listen => 5); $| = 1; print "listens\\n"; ' +
  'while ($c = $s->accept) { <$c>; print $c "HTTP/1.0 200 OK\\r\\nContent-Type: text/html\\r\\n\\r\\n<p>served</p>"; close $c }'
await page.fill('input[name=command]', `perl -MIO::Socket::INET -e '${server}'`)
await press(page, 'Run')
await page.getByText('listens', { exact: true }).waitFor()
await page.getByText('Ports', { exact: true }).click()
await page.fill('input[name=port]', '8000')
await press(page, 'Link')
const [served] = await Promise.all([context.waitForEvent('page'), page.getByRole('link', { name: 'port 8000' }).click()])
await served.waitForLoadState()
out.served = [await served.textContent('body'), await served.evaluate(() => Object.keys(sessionStorage).length)]
await served.close()

// --- what happened in it, as the audit log has it
await page.fill('input[name=command]', `perl -e 'syscall(321, 0, 0, 0)'; touch '/tmp/<img src=x onerror=alert(1)>'; echo probed`)
await press(page, 'Run')
await page.getByText('probed', { exact: true }).waitFor()
await page.getByText('What happened', { exact: true }).click()
for (;;) { // it comes to the log within a second
  const told = page.waitForResponse((r) => r.url().endsWith('AuditService/Tree'))
  await press(page.locator('details:has(.tree)'), 'Look again')
  await (await told).finished()
  await page.locator('.tree li').first().waitFor()
  out.tree = await page.innerText('.tree')
  if (out.tree.includes('bpf')) break
}
out.treeElements = await page.locator('.tree img').count()
await shot('happened')
await page.click('nav a[data-tab=audit]')
await page.waitForSelector('table[aria-label=Findings] tbody tr')
out.finding = await page.innerText('table[aria-label=Findings] tbody tr')
await page.waitForSelector('table[aria-label=Records] tbody tr')
await page.fill('input[name=event]', 'guest.denied')
await page.fill('input[name=unit]', out.id)
await press(page, 'Look')
await page.getByText('as it comes', { exact: true }).waitFor()
out.records = await page.locator('table[aria-label=Records] tbody tr td:nth-child(2)').allInnerTexts()
await page.fill('input[name=event]', '!api.call')
await page.fill('input[name=unit]', '')
await press(page, 'Look')
await page.getByText('as it comes', { exact: true }).waitFor()
await shot('audit')

// --- it rests and goes on, from the list
await page.click('nav a[data-tab=sandboxes]')
const row = page.locator(`tr[data-id="${out.id}"]`)
await press(row, 'Pause')
await row.locator('.badge.paused').waitFor()
out.paused = await row.locator('.badge').textContent()
await press(row, 'Resume')
await row.locator('.badge.running').waitFor()
await row.locator('td.number', { hasText: 'MiB' }).first().waitFor()
await shot('sandboxes')

// --- the other lists
await page.click('nav a[data-tab=jobs]')
await page.waitForSelector('table[aria-label=Jobs] tbody tr')
out.job = await page.textContent('table[aria-label=Jobs] tbody tr td:nth-child(3)')
await shot('jobs')
await page.click('table[aria-label=Jobs] tbody tr a')
await page.waitForSelector('.output .end')
out.jobOutput = await page.textContent('.output span')
await page.click('nav a[data-tab=workers]')
await page.waitForSelector('table[aria-label=Workers] tbody tr')
out.worker = await page.textContent('table[aria-label=Workers] .badge')
await shot('workers')
await page.click('nav a[data-tab=snapshots]')
await page.waitForSelector('text=No snapshot is kept.')

// --- its end, at which what was just asked about it may be refused; and that nothing but this tab knew the key
const errors = [...out.errors]
await page.goto(`${url}/dashboard#/sandbox/${out.id}`)
await press(page, 'End')
await page.waitForSelector('.badge.ended')
out.cookies = (await context.cookies()).length
out.stored = await page.evaluate(() => [Object.keys(localStorage).length, Object.keys(sessionStorage)])
const other = await context.newPage()
await other.goto(url)
out.otherTab = await other.locator('input[name=key]').count()
await other.goto(`${url}/dashboard#key=${key}`)
await other.waitForSelector('nav')
out.address = other.url().replace(url, '')
await press(page, 'Sign out')
await page.waitForSelector('input[name=key]')
out.signedOut = await page.evaluate(() => Object.keys(sessionStorage))
await browser.close()
console.log(JSON.stringify({ ...out, errors }))
