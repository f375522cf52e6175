/* tests/fuzz/replay.c - run a fuzz target over the files of a folder, for builds without
 * libFuzzer; the empty input always runs.
 *
 * usage: fuzz_NAME [--fail-allocations] DIR...
 *   --fail-allocations  each input again and again, failing its 1st, 2nd, 3rd … allocation, until
 *                       none is left to fail: what it was cut short in must neither crash nor leak
 */
#include "base/mem.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { INPUT_MAX = 1 << 20 };

static bool arg_fail;
static long failures;

static void run(const uint8_t *data, size_t n)
{
    bool hit = arg_fail;
    (void)LLVMFuzzerTestOneInput(data, n); /* also makes what lives from one input to the next */
    for (long nth = 0; hit; nth++) {
        cl_test_fail_alloc(nth);
        (void)LLVMFuzzerTestOneInput(data, n);
        hit = cl_test_alloc_failed();
        failures += hit;
    }
    cl_test_fail_alloc(-1);
}

static int replay(const char *dir, const char *name)
{
    static uint8_t data[INPUT_MAX];
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    if (!f)
        return 0;
    size_t n = fread(data, 1, sizeof data, f);
    (void)fclose(f);
    run(data, n);
    return 1;
}

int main(int argc, char **argv)
{
    int runs = 1;
    static const uint8_t nothing[1];
    arg_fail = argc > 1 && strcmp(argv[1], "--fail-allocations") == 0;
    run(nothing, 0);
    for (int i = 1 + arg_fail; i < argc; i++) {
        DIR *d = opendir(argv[i]);
        struct dirent *e;
        while (d && (e = readdir(d)) != NULL)
            if (e->d_name[0] != '.')
                runs += replay(argv[i], e->d_name);
        if (d)
            (void)closedir(d);
    }
    (void)printf("%d inputs, %ld allocations failed\n", runs, failures);
    return 0;
}
