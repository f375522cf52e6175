/* cli/host.c - the rows of `up`, `down`, `status`. */
#include "cli/up.h"

static const struct arg_opt up_opts[] = {
    {"foreground", 'f', ARG_FLAG, OPT(foreground), NULL, "stay here and supervise (for systemd)"},
    {"log-to-stderr", 0, ARG_FLAG, OPT(log_to_stderr), NULL,
     "with --foreground: all processes log here, not to files (journald, containers)"},
    {"listen", 0, ARG_STRING, OPT(listen), "HOST:PORT", "serve TCP too; TLS 1.3 off loopback"},
    {"insecure-listen", 0, ARG_FLAG, OPT(insecure_listen), NULL, "allow plaintext off loopback"},
    {"worker-listen", 0, ARG_STRING, OPT(worker_listen), "HOST:PORT",
     "let workers of other hosts join here (mTLS; see `worker token`)"},
    {"templates", 0, ARG_STRING, OPT(templates), "a,b",
     "templates to keep warm, once they are built (default base,python,code,images: the last "
     "is each one that is made of a container image)"},
    {"warm", 0, ARG_U64, OPT(warm), "N", "VMs that wait warm, per template"},
    {"driver", 0, ARG_STRING, OPT(driver), "X",
     "auto; or, the preferred first and with commas, kvm, kvm/xenpv, kvm/xenpv-shared, qemu/kvm, "
     "qemu/tcg"},
    {"net-private", 0, ARG_STRING, OPT(net_private), "10.1.0.0/16",
     "addresses that are not public and that --net may name all the same, with commas"},
    {"build-net", 0, ARG_STRING, OPT(build_net), "RULES",
     "what builds of templates by E2B's SDKs may reach, as --net says it: deb.debian.org:80,"
     "pypi.org,files.pythonhosted.org (default nothing)"},
    {"rules", 0, ARG_STRING, OPT(rules), "FILE",
     "detections of your own for findings (docs/rules.md); read again when it changes"},
    {"metrics", 0, ARG_STRING, OPT(metrics), "HOST:PORT",
     "where /metrics is served; none = nowhere"},
    {"mcp", 0, ARG_STRING, OPT(mcp), "HOST:PORT",
     "where MCP, E2B's API and the dashboard are served (default 127.0.0.1:7780)"},
    {"no-users", 0, ARG_FLAG, OPT(no_users), NULL, "as root: run every process as root"},
    OPT_DIRS,
    {"ready-fd", 0, ARG_U64, OPT(ready_fd), "FD", "with --foreground: report progress here"},
};
static const struct arg_opt dir_opts[] = {OPT_DIRS};
static const struct arg_opt status_opts[] = {OPT_JSON, OPT_DIRS};

const struct cli_command host_commands[] = {
    {"up", "[OPTIONS]", "start Cloche on this host",
     "Starts a private Redis, the audit writer and reader, the scheduler, the gateway and a "
     "worker, and "
     "leaves a "
     "supervisor\n"
     "that starts again what crashes.  Returns when a sandbox can be had; a second `up` does "
     "nothing.\n"
     "As root, state is in /var/lib/cloche and the processes get users of their own; otherwise it "
     "is\n"
     "in ~/.local/state/cloche.\n\n"
     "  cloche up\n"
     "  cloche up --listen 0.0.0.0:7443          # TLS; `cloche status` names the CA file\n"
     "  cloche up --state-dir /srv/a --run-dir /run/a   # a second instance\n",
     SPEC(up_opts, 0, 0), cmd_up, false},
    {"down", "[OPTIONS]", "end Cloche on this host",
     "Sandboxes that run are paused, and go on at the next `cloche up`; jobs end.\nTakes at most "
     "30 s, then kills.\n",
     SPEC(dir_opts, 0, 0), cmd_down, false},
    {"status", "[--json]", "what runs here",
     "Exit code 0 when it runs, 1 when not.\n\n  cloche status --json | jq -r .driver\n",
     SPEC(status_opts, 0, 0), cmd_status, false},
};
const size_t host_commands_n = CL_COUNT(host_commands);
