/* tests/e2e/verify_chain.c - does this audit log verify?
 *
 * Usage: e2e_verify DIR PUBLIC_KEY
 * Exit status: that of the verdict (0 ok, 1 bad, 3 torn), 2 when the walk could not be done.
 */
#include <inttypes.h>
#include <stdio.h>

#include "audit/verify.h"

int main(int argc, char **argv)
{
    struct audit_report r = {0};
    struct cl_err err = {0};
    if (argc != 3) {
        (void)fprintf(stderr, "usage: e2e_verify DIR PUBLIC_KEY\n");
        return 2;
    }
    struct audit_verify_conf conf = {.dir = argv[1], .public_key = argv[2]};
    if (audit_verify_dir(&conf, &r, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 2;
    }
    (void)printf("streams=%" PRIu64 " records=%" PRIu64 " gaps=%" PRIu64 " recovered=%" PRIu64
                 " stream='%s' seq=%" PRIu64 " file='%s' offset=%" PRIu64 " reason='%s'\n",
                 r.streams, r.records, r.gaps, r.recovered, r.stream, r.seq, r.file, r.offset,
                 r.reason);
    return (int)r.verdict;
}
