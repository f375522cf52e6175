/* bench/guest_bench.c - what a program pays the system under it: run inside, by bench/guests.py.
 *
 * usage: guest_bench        (needs /bin/true, python3, gcc, sha256sum, gzip, and /tmp to write to)
 *
 * Prints a line a sample: the figure's name, and microseconds.  The first of each is not printed.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HELLO "/tmp/hello.c"
#define BLOB "/tmp/blob"
#define END "end" /* what this program is told that only starts and ends */

static _Noreturn void die(const char *what)
{
    perror(what);
    exit(1);
}

static double now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* --- what is timed: microseconds of one --------------------------------------------------------
 */

static double syscalls(void)
{
    enum { N = 1000 };
    double begin = now_us();
    for (int i = 0; i < N; i++)
        (void)getppid();
    return (now_us() - begin) / N;
}

/* Pages of new memory, written to in order. */
static double new_pages(bool one_by_one)
{
    enum { PAGE = 4096, N = 2048 };
    char *p =
        mmap(NULL, (size_t)N * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || (one_by_one && madvise(p, (size_t)N * PAGE, MADV_NOHUGEPAGE) < 0))
        die("memory");
    double begin = now_us();
    for (size_t i = 0; i < N; i++)
        *(volatile char *)(p + i * PAGE) = 1;
    double took = (now_us() - begin) / N;
    if (munmap(p, (size_t)N * PAGE) < 0)
        die("munmap");
    return took;
}

static double page_faults(void)
{
    return new_pages(true);
}

static double memory(void)
{
    return new_pages(false);
}

static double run(const char *const *argv)
{
    int status;
    double begin = now_us();
    pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (null < 0 || dup2(null, STDOUT_FILENO) < 0)
            _exit(126);
        (void)execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    if (waitpid(pid, &status, 0) < 0)
        die("wait");
    if (status != 0) {
        (void)fprintf(stderr, "%s: wait status %d\n", argv[0], status);
        exit(1);
    }
    return now_us() - begin;
}

static double fork_exec(void)
{
    return run((const char *const[]){"/bin/true", NULL});
}

static double fork_exec_static(void)
{
    return run((const char *const[]){"/proc/self/exe", END, NULL});
}

static double python(void)
{
    return run((const char *const[]){"python3", "-c", "print(1)", NULL});
}

static double gcc(void)
{
    return run((const char *const[]){"gcc", "-O2", "-o", "/tmp/hello", HELLO, NULL});
}

static double sha256_gzip(void)
{
    return run((const char *const[]){"sha256sum", BLOB, NULL}) +
           run((const char *const[]){"gzip", "-c", BLOB, NULL});
}

static double loop(void)
{
    enum { N = 100000000 };
    volatile uint32_t result;
    uint32_t x = 1;
    double begin = now_us();
    for (int i = 0; i < N; i++)
        x = x * 1664525 + 1013904223;
    result = x;
    (void)result;
    return now_us() - begin;
}

/* --- two pipes, and somebody at their other end ------------------------------------------------
 */

static int to_echo = -1, from_echo = -1;

static void start_echo(void)
{
    int there[2], back[2];
    char byte;
    if (pipe(there) < 0 || pipe(back) < 0)
        die("pipe");
    pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0) {
        (void)close(there[1]);
        while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
            ;
        _exit(0);
    }
    (void)close(there[0]);
    (void)close(back[1]);
    to_echo = there[1];
    from_echo = back[0];
}

static double pipes(void)
{
    enum { N = 10 };
    char byte = 0;
    double begin = now_us();
    for (int i = 0; i < N; i++) {
        if (write(to_echo, &byte, 1) != 1 || read(from_echo, &byte, 1) != 1)
            die("pipe");
    }
    return (now_us() - begin) / N;
}

/* --- all of it ---------------------------------------------------------------------------------
 */

/* Little of it is in memory: what this program has its children copy. */
static void put_blob(FILE *f)
{
    enum { PIECE = 1 << 16, PIECES = 256, LETTERS = 23 };
    static char piece[PIECE];
    uint32_t x = 1;
    for (int n = 0; n < PIECES; n++) {
        for (size_t i = 0; i < PIECE; i++) {
            x = x * 1664525 + 1013904223;
            piece[i] = (char)('a' + (x >> 24) % LETTERS);
        }
        if (fwrite(piece, 1, PIECE, f) != PIECE)
            die(BLOB);
    }
}

static void put_files(void)
{
    static const char hello[] =
        "#include <stdio.h>\nint main(void) { return puts(\"hello\") < 0; }\n";
    FILE *f = fopen(HELLO, "we");
    if (!f || fputs(hello, f) < 0 || fclose(f) != 0)
        die(HELLO);
    f = fopen(BLOB, "we");
    if (!f)
        die(BLOB);
    put_blob(f);
    if (fclose(f) != 0)
        die(BLOB);
}

static void sample(const char *name, int n, double (*figure)(void))
{
    (void)figure();
    for (int i = 0; i < n; i++)
        (void)printf("%s %.4f\n", name, figure());
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], END) == 0)
        return 0;
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    put_files();
    start_echo();
    sample("getppid", 20, syscalls);
    sample("fault", 5, page_faults);
    sample("memory", 5, memory);
    sample("fork_exec", 50, fork_exec);
    sample("fork_exec_static", 50, fork_exec_static);
    sample("pipes", 50, pipes);
    sample("python", 10, python);
    sample("gcc", 5, gcc);
    sample("loop", 3, loop);
    sample("sha256_gzip", 3, sha256_gzip);
    return 0;
}
