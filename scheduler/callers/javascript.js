await null; // no script can begin so: the REPL takes it, which awaits what follows
await (async (entry, find, text) => {
  // Call what find() finds with the arguments in `text`, which is JSON that was checked; null = only look for it.
  const most = 1 << 20;
  const tell = (forms) =>
    display(Object.fromEntries(Object.entries(forms).map(([kind, value]) => ['application/x-cloche-' + kind, value])));
  const fail = (name, value, stack) => {
    const lines = String(stack).split('\n'), end = lines.findIndex((line) => line.includes('clocheCall'));
    const told = lines.slice(0, end < 0 ? lines.length : end).join('\n');
    tell({ error: String(name).slice(0, 1000), value: String(value).slice(0, 20000), traceback: told.slice(0, 60000) });
  };
  const found = find();
  if (typeof found !== 'function')
    return tell({ refused: `entry '${entry}' is ${found === undefined ? 'not there' : 'no function'}` });
  if (text === null) return tell({ found: '1' });
  const given = text ? JSON.parse(text) : [];
  let value;
  try {
    const clocheCall = async () => await (Array.isArray(given) ? found(...given) : found(given));
    value = await clocheCall();
  } catch (e) {
    return fail(e?.name ?? typeof e, e?.message ?? e, e?.stack ?? e);
  }
  let out;
  try {
    out = JSON.stringify(value) ?? 'null';
  } catch (e) {
    const why = `${entry}() returned what is no JSON: ${e.message}`;
    return fail('TypeError', why, 'TypeError: ' + why);
  }
  if (out.length > most) {
    const why = `${entry}() returned ${out.length} characters of JSON; at most ${most}`;
    return fail('RangeError', why, 'RangeError: ' + why);
  }
  tell({ result: out });
})(
