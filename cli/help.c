/* cli/help.c - help texts and shell completion, from the table of commands.
 *
 * Owns:    nothing.
 * Thread:  the only one.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

void help_all(const struct cli_table *t)
{
    (void)printf("cloche - run untrusted code in microVMs on your own hosts\n\n"
                 "usage: cloche COMMAND [OPTIONS] [ARGUMENTS]\n\n");
    for (size_t i = 0; i < t->n; i++)
        (void)printf("  %-16s  %s\n", t->rows[i]->name, t->rows[i]->brief);
    (void)printf("  %-16s  %s\n  %-16s  %s\n  %-16s  %s\n\n", "completion",
                 "print completion for bash or zsh", "help", "this, or the help of a command",
                 "--version", "the version");
    (void)printf(
        "Begin with: cloche up; cloche run python -- python3 -c 'print(6*7)'\n"
        "`cloche COMMAND --help` has examples.  Environment: CLOCHE_ENDPOINT (unix:/PATH or "
        "HOST:PORT;\n"
        "all of several schedulers that stand by for one another, as in a:7443,b:7443), "
        "CLOCHE_API_KEY or\n"
        "CLOCHE_KEY_FILE, CLOCHE_CA, CLOCHE_STATE_DIR, CLOCHE_RUN_DIR; TRACEPARENT (W3C Trace "
        "Context: the\n"
        "trace that the command belongs to).\n");
}

static void print_option(const struct arg_opt *o)
{
    char left[64];
    (void)snprintf(left, sizeof left, "%c%c%s --%s %s", o->letter ? '-' : ' ',
                   o->letter ? o->letter : ' ', o->letter ? "," : " ", o->name,
                   o->value ? o->value : "");
    (void)printf("  %-34s  %s\n", left, o->help);
}

void help_command(const struct cli_command *c)
{
    (void)printf("cloche %s - %s\n\nusage: cloche %s %s\n", c->name, c->brief, c->name, c->form);
    if (c->text)
        (void)printf("\n%s", c->text);
    if (c->spec.n_opts > 0)
        (void)printf("\noptions:\n");
    for (size_t i = 0; i < c->spec.n_opts; i++)
        print_option(&c->spec.opts[i]);
}

bool help_group(const struct cli_table *t, const char *word)
{
    size_t n = strlen(word), found = 0;
    for (size_t i = 0; i < t->n; i++) {
        const struct cli_command *c = t->rows[i];
        if (strncmp(c->name, word, n) != 0 || c->name[n] != ' ')
            continue;
        if (found++ == 0)
            (void)printf("cloche %s - these commands:\n\n", word);
        (void)printf("  %-16s  %s\n                    cloche %s %s\n", c->name, c->brief, c->name,
                     c->form);
    }
    if (found > 0)
        (void)printf("\n`cloche %s COMMAND --help` has options and examples.\n", word);
    return found > 0;
}

int help_unknown(const struct cli_table *t, const char *word)
{
    size_t n = strlen(word), found = 0;
    for (size_t i = 0; i < t->n; i++) {
        const struct cli_command *c = t->rows[i];
        if (strncmp(c->name, word, n) != 0 || (c->name[n] != ' ' && n < 2))
            continue;
        if (found++ == 0)
            (void)fprintf(stderr, "cloche: '%.40s' is not a whole command; these begin so:\n",
                          word);
        (void)fprintf(stderr, "  cloche %s %s\n", c->name, c->form);
    }
    if (found == 0)
        (void)fprintf(stderr, "cloche: no command '%.40s'\n", word);
    (void)fprintf(stderr, "  remedy: cloche help\n");
    return EXIT_USAGE;
}

/* --- completion ----------------------------------------------------------------------------------
 */

/* The first words, each once. */
static void print_words(const struct cli_table *t)
{
    const char *last = "";
    size_t last_n = 0;
    for (size_t i = 0; i < t->n; i++) {
        const char *name = t->rows[i]->name;
        size_t n = strcspn(name, " ");
        if (n != last_n || strncmp(name, last, n) != 0)
            (void)printf(" %.*s", (int)n, name);
        last = name;
        last_n = n;
    }
    (void)printf(" completion help --version");
}

/* One case of the shell's switch: the command's words and its options. */
static void print_case(const struct cli_command *c)
{
    (void)printf("    '%s') words='--help", c->name);
    for (size_t i = 0; i < c->spec.n_opts; i++)
        (void)printf(" --%s", c->spec.opts[i].name);
    (void)printf("';;\n");
}

static void print_second_words(const struct cli_table *t)
{
    for (size_t i = 0; i < t->n; i++) {
        const char *name = t->rows[i]->name, *space = strchr(name, ' ');
        if (!space ||
            (i > 0 && strncmp(t->rows[i - 1]->name, name, (size_t)(space - name) + 1) == 0))
            continue;
        (void)printf("    '%.*s') words='", (int)(space - name), name);
        for (size_t k = i; k < t->n; k++)
            if (strncmp(t->rows[k]->name, name, (size_t)(space - name) + 1) == 0)
                (void)printf("%s ", t->rows[k]->name + (space - name) + 1);
        (void)printf("--help';;\n");
    }
    (void)printf("    completion) words='bash zsh';;\n");
}

int help_completion(const struct cli_table *t, const char *shell)
{
    bool zsh = strcmp(shell, "zsh") == 0;
    if (!zsh && strcmp(shell, "bash") != 0) {
        (void)fprintf(stderr,
                      "cloche: completion needs a shell\n  remedy: cloche completion bash|zsh\n");
        return EXIT_USAGE;
    }
    if (zsh)
        (void)printf("#compdef cloche\n# source <(cloche completion zsh)\nautoload -U +X "
                     "bashcompinit && bashcompinit\n");
    else
        (void)printf("# source <(cloche completion bash)\n");
    (void)printf("_cloche() {\n  local cur=${COMP_WORDS[COMP_CWORD]} words=''\n"
                 "  if [ \"$COMP_CWORD\" -eq 1 ]; then words='");
    print_words(t);
    (void)printf("'; else\n    case \"${COMP_WORDS[1]}\" in\n");
    for (size_t i = 0; i < t->n; i++)
        if (!strchr(t->rows[i]->name, ' '))
            print_case(t->rows[i]);
    print_second_words(t);
    (void)printf("    esac\n    case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n");
    for (size_t i = 0; i < t->n; i++)
        if (strchr(t->rows[i]->name, ' '))
            print_case(t->rows[i]);
    (void)printf("    esac\n  fi\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                 "  case $cur in -*) ;; *) [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f "
                 "-- \"$cur\")) ;; esac\n}\n"
                 "complete -F _cloche cloche\n");
    return EXIT_OK;
}
