def __cloche_call__(entry, text):
    """Call what is called `entry` with the arguments in `text`, which is JSON that was checked; None = only look for it."""
    import builtins
    import inspect
    import json
    import traceback
    most = 1 << 20

    class Told:
        """What a cell's result is to say, by media type."""

        def __init__(self, forms):
            self.forms = {"application/x-cloche-" + kind: value for kind, value in forms.items()}

        def __repr__(self):
            return ""

        def _repr_mimebundle_(self, include=None, exclude=None):
            return self.forms

    def error(e, frames):
        try:
            value = str(e)
        except Exception:
            value = ""
        told = "".join(traceback.TracebackException(type(e), e, frames).format())
        return Told({"error": type(e).__name__[:1000], "value": value[:20_000], "traceback": told[-60_000:]})

    first, *rest = entry.split(".")
    found = globals().get(first, getattr(builtins, first, None))
    for name in rest:
        found = getattr(found, name, None)
    if not callable(found):
        what = "is no function" if found is not None else "is not there"
        return Told({"refused": "entry '%s' %s" % (entry, what)})
    if text is None:
        return Told({"found": "1"})
    arguments = json.loads(text) if text else []
    try:
        value = found(**arguments) if isinstance(arguments, dict) else found(*arguments)
        if inspect.isawaitable(value):
            import asyncio

            async def wait():
                return await value
            value = asyncio.run(wait())
    except (Exception, SystemExit) as e:
        return error(e, e.__traceback__.tb_next)
    try:
        out = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except Exception as e:  # also what its own objects raise
        return error(TypeError("%s() returned what is no JSON: %s" % (entry, e)), None)
    if len(out) > most:
        return error(ValueError("%s() returned %d bytes of JSON; at most %d" % (entry, len(out), most)), None)
    return Told({"result": out})


