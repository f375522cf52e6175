#!/usr/bin/env python3
"""While one command of a sandbox was followed, none that had ended was forgotten: after 256 of them the sandbox ran no more."""
import threading

from harness import Suite, pb

suite = Suite("commands_beside_a_followed_one")
check, equal = suite.check, suite.equal
COMMANDS = 300  # a sandbox keeps 256


def start(client, sandbox, *argv):
    return client.execs.Start(pb.StartRequest(sandbox_id=sandbox, command=pb.Command(argv=argv))).exec_id


@suite.scenario
def commands_beside_a_followed_one(c):
    sandbox = c.admin.sandboxes.Create(pb.CreateRequest(template="base")).sandbox.id
    said = []
    followed = start(c.admin, sandbox, "sh", "-c", "echo begins; while [ ! -e /tmp/end ]; do sleep 0.1; done; echo ends")
    stream = c.admin.execs.Attach(pb.AttachRequest(sandbox_id=sandbox, exec_id=followed))
    follower = threading.Thread(target=lambda: said.extend(stream), daemon=True)
    follower.start()
    codes = set()
    for _ in range(COMMANDS):
        ran = start(c.admin, sandbox, "true")
        codes.add(c.admin.execs.Wait(pb.WaitRequest(sandbox_id=sandbox, exec_id=ran)).result.exit_code)
    equal(f"{COMMANDS} commands run", codes, {0})
    start(c.admin, sandbox, "touch", "/tmp/end")
    follower.join(60)
    equal("the followed one is heard to its end", b"".join(m.output.data for m in said if m.HasField("output")), b"begins\nends\n")
    check("… and that is told", said and said[-1].HasField("ended"), said)
    c.admin.sandboxes.Kill(pb.KillRequest(sandbox_id=sandbox))


if __name__ == "__main__":
    suite.main(templates="base", warm=1)
