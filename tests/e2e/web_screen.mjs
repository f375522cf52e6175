// The dashboard's terminal, without a page: what programs send, and what is on the screen then.  Prints one line a failure.
//
// usage: node web_screen.mjs PATH-OF-screen.js
const { Screen } = await import(process.argv[2])

const CASES = [ // name, rows x columns, what comes, the screen, the cursor as row;column from 1 on, what is answered
  ['text', 3, 10, 'one\r\ntwo', 'one\ntwo', '2;4'],
  ['a line that is too long goes on', 3, 4, 'abcdef', 'abcd\nef', '2;3'],
  ['the last column waits for the next character', 3, 4, 'abcd\r\ne', 'abcd\ne', '2;2'],
  ['without wrapping it is written over', 2, 4, '\x1b[?7labcdef', 'abcf', '1;4'],
  ['up at the end', 2, 5, '1\r\n2\r\n3', '2\n3', '2;2'],
  ['back and tab', 1, 20, 'ab\bX\tY', 'aX      Y', '1;10'],
  ['to a place', 3, 5, '\x1b[2;3Hx\x1b[HA\x1b[99;99Hz', 'A\n  x\n    z', '3;5'],
  ['relative', 3, 5, 'a\x1b[Bb\x1b[2Dc\x1b[Ad\x1b[2Ce', 'ad  e\ncb', '1;5'],
  ['by column and row', 3, 5, '\x1b[3Ga\x1b[2db', '  a\n   b', '2;5'],
  ['erases to the end of the line', 2, 5, 'abcde\x1b[1;3H\x1b[K', 'ab', '1;3'],
  ['… to its beginning, and all of it', 2, 5, 'abcde\r\nfghij\x1b[1;3H\x1b[1K\x1b[2H\x1b[2K', '   de', '2;1'],
  ['erases the screen below and above', 3, 3, 'aaa\r\nbbb\r\nccc\x1b[2;2H\x1b[J', 'aaa\nb', '2;2'],
  ['… above', 3, 3, 'aaa\r\nbbb\r\nccc\x1b[2;2H\x1b[1J', '\n  b\nccc', '2;2'],
  ['… all', 2, 3, 'aaa\r\nbb\x1b[2J', '', '2;3'],
  ['inserts and removes characters', 1, 6, 'abcdef\x1b[1;2H\x1b[2@\x1b[1;5H\x1b[P', 'a  bd', '1;5'],
  ['erases characters', 1, 6, 'abcdef\x1b[1;2H\x1b[3X', 'a   ef', '1;2'],
  ['insert mode', 1, 6, 'abc\x1b[H\x1b[4hX\x1b[4lY', 'XYbc', '1;3'],
  ['inserts and removes lines', 4, 3, '1\r\n2\r\n3\r\n4\x1b[2H\x1b[L\x1b[4H\x1b[M', '1\n\n2', '4;1'],
  ['margins', 4, 3, '1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3H\n\x1b[r', '1\n3\n\n4', '1;1'],
  ['back over the top margin', 4, 3, '1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[2H\x1bM', '1\n\n2\n4', '2;1'],
  ['scrolls', 3, 3, '1\r\n2\r\n3\x1b[S\x1b[2T', '\n\n2', '3;2'],
  ['origin', 4, 4, '\x1b[2;3r\x1b[?6h\x1b[1;1Ha\x1b[9;1Hb\x1b[6n', '\na\nb', '3;2', '\x1b[2;2R'],
  ['the other screen, and back', 2, 5, 'main\x1b[?1049h\x1b[Hother\x1b[?1049l!', 'main!', '1;5'],
  ['… while it is shown', 2, 5, 'main\x1b[?1049h\x1b[Hother', 'other', '1;5'],
  ['saves and restores', 2, 5, 'ab\x1b7\x1b[2;5Hx\x1b8c', 'abc\n    x', '1;4'],
  ['wide characters', 2, 5, '日本語', '日本\n語', '2;3'],
  ['half of one is none', 1, 5, '日本\x1b[1;2Hx', ' x本', '1;3'],
  ['… from the left', 1, 5, '日本\x1b[1;1Hx', 'x 本', '1;2'],
  ['what combines', 1, 5, 'e\u0301x', 'e\u0301x', '1;3'],
  ['lines are drawn', 1, 5, '\x1b(0lqk\x1b(Bq', '┌─┐q', '1;5'],
  ['repeats', 1, 6, 'ab\x1b[3b', 'abbbb', '1;6'],
  ['titles, links and the clipboard are ignored', 1, 10, '\x1b]0;title\x07a\x1b]52;c;aGk=\x1b\\b\x1bPq#0\x1b\\c', 'abc', '1;4'],
  ['what kind it is', 1, 5, '\x1b[c\x1b[>c\x1b[5n', '', '1;1', '\x1b[?1;2c\x1b[>0;0;0c\x1b[0n'],
  ['it tells nothing that came', 1, 9, '\x1b[21t\x1b[?15n\x05x', 'x', '1;2', ''],
  ['reset', 2, 5, 'abc\x1b[1m\x1b[2;2r\x1bcx', 'x', '1;2'],
  ['cut in the middle', 1, 5, ['a\x1b', '[', '3', 'D', 'b\x1b]0;x', '\x1b', '\\c'], 'bc', '1;3'],
  ['no such thing', 1, 9, '\x1b[1$}\x1b[999999999999@\x1b[;;;;m\x1b[?99h\x1b[38;5mx\x1b[=1uy', 'xy', '1;3'],
  ['a sequence without an end', 1, 5, '\x1b[' + '1'.repeat(5000) + 'mx', 'x', '1;2'],
]

let failed = 0
const fail = (name, got, want) => { failed++; console.log(`${name}: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`) }

for (const [name, rows, columns, text, want, cursor, answer = ''] of CASES) {
  let said = ''
  const screen = new Screen(rows, columns, (t) => { said += t })
  for (const part of [].concat(text)) screen.feed(part)
  if (screen.text() !== want) fail(name, screen.text(), want)
  const at = `${screen.at.row + 1};${screen.at.column + 1}`
  if (at !== cursor) fail(`${name} (cursor)`, at, cursor)
  if (said !== answer) fail(`${name} (answer)`, said, answer)
}

const styled = new Screen(1, 20)
styled.feed('\x1b[1;31ma\x1b[0;38;5;196mb\x1b[48;2;1;2;3mc\x1b[38:2::9:8:7md\x1b[22;39;49me\x1b[97;100mf\x1b[7mg\x1b[27;4:0mh')
const styles = styled.lines[0].cells.slice(0, 8).map(([, s]) => JSON.stringify(s))
const wanted = ['{"bold":true,"fore":1}', '{"fore":"rgb(255 0 0)"}', '{"fore":"rgb(255 0 0)","back":"rgb(1 2 3)"}', '{"fore":"rgb(9 8 7)","back":"rgb(1 2 3)"}', '{}',
  '{"fore":15,"back":8}', '{"fore":15,"back":8,"inverse":true}', '{"fore":15,"back":8}']
wanted.forEach((want, i) => styles[i] === want || fail(`style ${i}`, styles[i], want))

const tall = new Screen(3, 5)
for (let i = 0; i < 5000; i++) tall.feed(`${i}\r\n`)
const left = tall.takeLeft()
if (left.length !== 2000 || left.at(-1).cells.map(([c]) => c).join('').trim() !== '4997') fail('rows that left', [left.length, left.at(-1)], [2000, '4997'])
tall.feed('\x1b[?1049h\n\n\n\n\n\n\x1b[?1049l\x1b[1;2r\x1b[2H\n')
if (tall.takeLeft().length !== 1) fail('the other screen leaves nothing', tall.left.length, 1)
tall.feed('\x1b[2;3r\x1b[3H\n\n')
if (tall.takeLeft().length !== 0) fail('what scrolls below a row that stays leaves nothing', tall.left.length, 0)

const sized = new Screen(4, 8)
sized.feed('one\r\ntwo\r\nthree\r\nfour')
sized.resize(2, 4)
if (sized.text() !== 'thre\nfour' || sized.at.row !== 1) fail('smaller', [sized.text(), sized.at], 'thre\nfour')
sized.resize(5, 10)
sized.feed('\r\nlast')
if (sized.text() !== 'thre\nfour\nlast') fail('larger', sized.text(), 'thre\nfour\nlast')

// Whatever comes, in whatever order: rows and columns stay as many, and the cursor stays among them.
let seed = Number(process.env.SEED ?? 1)
const random = (n) => { seed = (seed * 1103515245 + 12345) & 0x7fffffff; return (seed >> 8) % n }
const PIECES = ['\x1b[', '\x1b', ';', '?', '>', '!', '[', '0', '1', '2', '5', '38', '48', '999', '1049', 'h', 'l', 'm', 'H', 'J', 'K', 'L', 'M', 'P', '@', 'r', 'S', 'T', 'X', 'b', 'A', 'B', 'C', 'D', 'n', 'c', 'u', 's',
  '\x1bM', '\x1bD', '\x1bc', '\x1b7', '\x1b8', '\x1b(0', '\x1b]', '\x07', '\n', '\r', '\t', '\b', 'x', '日', '\u0301', '\x0e', '😀', '\x1b[?6h', '\x1b[2;3r', '\x1b[4h']
for (let round = 0; round < 300; round++) {
  const screen = new Screen(1 + random(6), 1 + random(9))
  for (let i = 0; i < 400; i++) {
    if (random(60) === 0) screen.resize(1 + random(6), 1 + random(9))
    screen.feed(PIECES[random(PIECES.length)])
    const ok = screen.lines.length === screen.rows && screen.lines.every((l) => l.cells.length === screen.columns && l.cells.every(([c]) => typeof c === 'string' && c.length <= 8)) &&
      screen.at.row >= 0 && screen.at.row < screen.rows && screen.at.column >= 0 && screen.at.column < screen.columns && screen.top <= screen.bottom && screen.bottom < screen.rows
    if (!ok) { fail('any order', [round, i, screen.rows, screen.columns, screen.at, screen.lines.map((l) => l.cells.length)], 'whole'); break }
  }
}
console.log(`${CASES.length} cases, ${failed} failed`)
process.exit(failed ? 1 : 0)
