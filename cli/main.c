/* cli/main.c - cloche: the table of commands. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

enum { COMMANDS_MAX = 96 };

static void add_rows(const struct cli_command **rows, size_t *n, const struct cli_command *group,
                     size_t count)
{
    for (size_t i = 0; i < count && *n < COMMANDS_MAX; i++)
        rows[(*n)++] = &group[i];
}

/* "sandbox create" takes two words, "run" one; the longest name that matches wins. */
static const struct cli_command *find(const struct cli_table *t, int argc, char **argv,
                                      int *ret_words)
{
    for (int words = argc > 2 ? 2 : argc - 1; words > 0; words--) {
        char name[64];
        (void)snprintf(name, sizeof name, "%s%s%s", argv[1], words > 1 ? " " : "",
                       words > 1 ? argv[2] : "");
        for (size_t i = 0; i < t->n; i++) {
            if (strcmp(t->rows[i]->name, name) == 0) {
                *ret_words = words;
                return t->rows[i];
            }
        }
    }
    return NULL;
}

static int run_command(const struct cli_command *c, int argc, char **argv)
{
    struct cli_opts o = {.warm = UINT64_MAX, .ready_fd = UINT64_MAX, .count = 1};
    struct args a;
    struct cl_err err = {0};
    if (args_parse(&c->spec, argc, argv, &o, &a, &err) < 0) {
        (void)cl_wrap(&err, "%s", c->name);
        (void)fprintf(stderr, "cloche: %s\n  remedy: cloche %s --help\n", err.text, c->name);
        return c->codes ? EXIT_CLOCHE : EXIT_USAGE;
    }
    if (a.help) {
        help_command(c);
        return EXIT_OK;
    }
    return c->run(&o, &a);
}

static int run_word(const struct cli_table *t, int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "help";
    int words = 0;
    const struct cli_command *c = find(t, argc, argv, &words);
    if (c)
        return run_command(c, argc - 1 - words, argv + 1 + words);
    if (strcmp(word, "--version") == 0 || strcmp(word, "version") == 0)
        return printf("cloche %s\n", CLOCHE_VERSION) > 0 ? EXIT_OK : EXIT_FAILED;
    if (strcmp(word, "completion") == 0)
        return help_completion(t, argc > 2 ? argv[2] : "");
    if (argc > 2 && args_wants_help(argv[2]) && help_group(t, word))
        return EXIT_OK;
    if (strcmp(word, "help") == 0 && argc > 2 && help_group(t, argv[2]))
        return EXIT_OK;
    if (strcmp(word, "help") == 0 && argc > 2 &&
        (c = find(t, argc - 1, argv + 1, &words)) != NULL) {
        help_command(c);
        return EXIT_OK;
    }
    if (strcmp(word, "help") == 0 || args_wants_help(word)) {
        help_all(t);
        return EXIT_OK;
    }
    return help_unknown(t, word);
}

int main(int argc, char **argv)
{
    const struct cli_command *rows[COMMANDS_MAX];
    struct cli_table t = {rows, 0};
    add_rows(rows, &t.n, job_commands, job_commands_n);
    add_rows(rows, &t.n, sandbox_commands, sandbox_commands_n);
    add_rows(rows, &t.n, snapshot_commands, snapshot_commands_n);
    add_rows(rows, &t.n, function_commands, function_commands_n);
    add_rows(rows, &t.n, port_commands, port_commands_n);
    add_rows(rows, &t.n, vm_commands, vm_commands_n);
    add_rows(rows, &t.n, top_commands, top_commands_n);
    add_rows(rows, &t.n, dashboard_commands, dashboard_commands_n);
    add_rows(rows, &t.n, code_commands, code_commands_n);
    add_rows(rows, &t.n, file_commands, file_commands_n);
    add_rows(rows, &t.n, template_commands, template_commands_n);
    add_rows(rows, &t.n, tenant_commands, tenant_commands_n);
    add_rows(rows, &t.n, audit_commands, audit_commands_n);
    add_rows(rows, &t.n, mirror_commands, mirror_commands_n);
    add_rows(rows, &t.n, traces_commands, traces_commands_n);
    add_rows(rows, &t.n, host_commands, host_commands_n);
    add_rows(rows, &t.n, doctor_commands, doctor_commands_n);
    add_rows(rows, &t.n, fleet_commands, fleet_commands_n);
    add_rows(rows, &t.n, mcp_commands, mcp_commands_n);
    return run_word(&t, argc, argv);
}
