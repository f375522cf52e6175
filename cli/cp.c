/* cli/cp.c - `cloche cp`: between this machine and a sandbox. */
#include <inttypes.h>
#include <jansson.h>

#include "cli/files.h"
#include "cli/output.h"
#include "cli/values.h"

static int cmd_cp(const struct cli_opts *o, const struct args *a)
{
    struct cl_err err = {0};
    struct value_place from, to;
    CL_AUTO(client_freep) struct client *client = NULL;
    int rc = value_place(a->pos[0], &from, &err) < 0 ? -1 : value_place(a->pos[1], &to, &err);
    if (rc == 0 && !from.sandbox[0] == !to.sandbox[0])
        rc = cl_fail(&err, CL_E_INVALID, 0,
                     "one of the two must be in a sandbox\nwrite it as SANDBOX:/path, as in: "
                     "cloche cp a.txt sbx_01...:/tmp/");
    if (rc < 0 || client_open(o, &client, &err) < 0)
        return cli_report(&err);
    struct copy copy = {.client = client,
                        .sandbox = from.sandbox[0] ? from.sandbox : to.sandbox,
                        .user = o->user,
                        .recursive = o->recursive};
    rc = from.sandbox[0] ? copy_down(&copy, from.path, to.path, &err)
                         : copy_up(&copy, from.path, to.path, &err);
    if (rc < 0)
        return cli_report(&err);
    if (o->json)
        return out_json(json_pack("{s:I, s:I, s:I}", "files", (json_int_t)copy.files, "bytes",
                                  (json_int_t)copy.bytes, "skipped", (json_int_t)copy.skipped));
    return EXIT_OK;
}

static const struct arg_opt cp_opts[] = {
    OPT_JSON,
    {"recursive", 'r', ARG_FLAG, OPT(recursive), NULL, "folders with what is in them"},
    {"user", 'u', ARG_STRING, OPT(user), "NAME", "user (default) or root"},
};

const struct cli_command file_commands[] = {
    {"cp", "[-r] SOURCE TARGET", "copy files into or out of a sandbox",
     "One of the two is SANDBOX:/path.  Modes are kept; symbolic links are skipped with a note; "
     "every\n"
     "upload is checked by its SHA-256.\n\n"
     "  cloche cp -r project sbx_01...:/tmp/\n  cloche cp sbx_01...:/tmp/out.csv .\n",
     SPEC(cp_opts, 2, 2), cmd_cp, false},
};
const size_t file_commands_n = CL_COUNT(file_commands);
