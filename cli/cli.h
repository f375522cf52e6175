/* cli/cli.h - what every command sees: its row of the table, its options, how it reports.
 *
 * Owns:    nothing; option strings are borrowed from argv and the environment.
 * Thread:  the only one.
 * A command returns its exit code and never calls exit().
 */
#ifndef CL_CLI_CLI_H
#define CL_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"
#include "cli/args.h"

enum {
    EXIT_OK = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_TIMED_OUT = 124,
    EXIT_CLOCHE = 125, /* run, exec: Cloche failed or refused */
    EXIT_NOT_EXECUTABLE = 126,
    EXIT_NOT_FOUND = 127,
    EXIT_SIGNAL = 128, /* + the signal's number */
};

/* The options of all commands; a command's table says which it takes. */
struct cli_opts {
    bool aliases; /* mcp */
    bool json, all, follow, recursive, force;
    bool keyless; /* set by a command: it calls what needs no API key */
    /* up, down, status */
    bool foreground, log_to_stderr, insecure_listen, no_users;
    const char *listen, *state_dir, *run_dir, *templates, *driver, *metrics, *worker_listen, *mcp,
        *net_private, *build_net;
    uint64_t warm, ready_fd;
    /* run, exec, sandbox create */
    bool interactive, tty, detach, from_stdin;
    uint64_t cpus, memory, disk, timeout, retry, ttl, keep, output_max, queue_wait;
    uint64_t count; /* sandbox fork; 1 unless given */
    const char *on_idle, *snapshot;
    bool replace; /* snapshot create */
    struct arg_list env, labels, net;
    uint64_t egress;
    const char *workdir, *upload, *user, *idempotency_key;
    /* sandbox forward, sandbox url, dashboard */
    const char *domain;
    /* repl */
    const char *language, *sandbox;
    /* function create, call */
    const char *entry, *template, *arguments;
    /* tenants, keys */
    const char *tenant, *scopes, *note, *rate, *isolation, *network, *count_calls;
    uint64_t max_sandboxes, max_vcpus, max_memory, max_disk, max_egress, max_file, cpu_time, period,
        burst, weight, queue;
    /* worker drain, worker enroll */
    bool undo, no_wait;
    const char *config;
    /* audit */
    bool ocsf, is_copy;
    const char *rules;
    const char *dir, *expect_head, *public_key, *event, *unit, *since, *until, *stream, *severity,
        *state_file, *to;
    uint64_t lines; /* audit, watch, top */
    bool once;      /* top */
    const char *sort;
    uint64_t interval;
    /* templates */
    bool locked, update_lock, no_contexts, plain_http, purge, dry_run;
    const char *mirror, *image, *store, *tag;
    struct arg_list warm_ups;
    uint64_t max_size;
    const char *template_name; /* mcp */
};

struct cli_command {
    const char *name;  /* "sandbox create" */
    const char *form;  /* "[OPTIONS] TEMPLATE -- COMMAND..." */
    const char *brief; /* one line */
    const char *text;  /* more, with examples; may be NULL */
    struct arg_spec spec;
    int (*run)(const struct cli_opts *o, const struct args *a);
    bool codes; /* failures of Cloche are 125 (run, exec) */
};

/* The groups; main.c puts them together. */
extern const struct cli_command host_commands[], job_commands[], sandbox_commands[],
    file_commands[];
extern const struct cli_command tenant_commands[], template_commands[], audit_commands[];
extern const struct cli_command doctor_commands[], fleet_commands[], code_commands[];
extern const size_t host_commands_n, job_commands_n, sandbox_commands_n, file_commands_n;
extern const size_t tenant_commands_n, template_commands_n, audit_commands_n, doctor_commands_n;
extern const size_t fleet_commands_n, code_commands_n;

extern const struct cli_command snapshot_commands[];
extern const size_t snapshot_commands_n;
extern const struct cli_command function_commands[]; /* and `call` */
extern const size_t function_commands_n;
extern const struct cli_command port_commands[];
extern const size_t port_commands_n;
extern const struct cli_command vm_commands[], top_commands[], dashboard_commands[];
extern const size_t vm_commands_n, top_commands_n, dashboard_commands_n;
extern const struct cli_command mirror_commands[]; /* audit mirror */
extern const size_t mirror_commands_n;
extern const struct cli_command traces_commands[]; /* audit traces */
extern const size_t traces_commands_n;

/* `mcp` */
extern const struct cli_command mcp_commands[];
extern const size_t mcp_commands_n;

#define OPT(field) offsetof(struct cli_opts, field)
#define OPT_JSON \
    { \
        "json", 0, ARG_FLAG, OPT(json), NULL, "print JSON" \
    }
#define OPT_DIRS \
    {"state-dir", 0, ARG_STRING, OPT(state_dir), "DIR", "state folder (CLOCHE_STATE_DIR)"}, \
    { \
        "run-dir", 0, ARG_STRING, OPT(run_dir), "DIR", "sockets folder (CLOCHE_RUN_DIR)" \
    }
#define SPEC(opts_, min_, max_) \
    { \
        .opts = (opts_), .n_opts = CL_COUNT(opts_), .min_pos = (min_), .max_pos = (max_) \
    }
#define SPEC_TAIL(opts_, min_, max_) \
    { \
        .opts = (opts_), .n_opts = CL_COUNT(opts_), .min_pos = (min_), .max_pos = (max_), \
        .tail = true \
    }

/* Print `cloche: text` and `  remedy: ...` on stderr; answers EXIT_FAILED.  The remedy is the
 * second line of the text where there is one, else what helps where it is known (a paused sandbox,
 * a service that does not run), else that of the code's row. */
int cli_report(const struct cl_err *err);
/* The same with another exit code. */
int cli_report_as(const struct cl_err *err, int code);
/* A line for people on stderr, "cloche: ...". */
void cli_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* help.c */
struct cli_table {
    const struct cli_command *const *rows;
    size_t n;
};
void help_all(const struct cli_table *t);
void help_command(const struct cli_command *c);
/* "bash" or "zsh"; EXIT_USAGE for others. */
int help_completion(const struct cli_table *t, const char *shell);
/* Says what begins with this word, or that nothing does; EXIT_USAGE. */
/* The commands that begin with word ("sandbox"); false when there is none. */
bool help_group(const struct cli_table *t, const char *word);
int help_unknown(const struct cli_table *t, const char *word);

#endif
