/* tests/escape/inject.c - make a process do one system call, as if its code had been taken over.
 *
 * usage: escape_inject PID NR [ARG ...]      ARG: a number, or =TEXT for a pointer to TEXT
 * Prints what the call returned, as the kernel gives it (-errno for an error).  The call is made by
 * the process itself: its uid, namespaces, fds, capabilities and seccomp filter decide.  Its main
 * thread is stopped for that time and then goes on as before; no code is changed, for the other
 * threads run on in it.
 * Source: ptrace(2), vdso(7), System V ABI x86-64 (a system call's registers).
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

enum { ARGS = 6, TEXT_SLOT = 256, BELOW_STACK = 8192 };

static const unsigned char syscall_insn[] = {0x0f, 0x05};

static void fail(const char *what)
{
    (void)fprintf(stderr, "escape_inject: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void await_stop(pid_t pid)
{
    int status;
    if (waitpid(pid, &status, __WALL) < 0 || !WIFSTOPPED(status)) {
        (void)fprintf(stderr, "escape_inject: the process ended (status %#x)\n", (unsigned)status);
        exit(3);
    }
}

static void poke(pid_t pid, uint64_t at, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i += sizeof(long)) {
        errno = 0;
        long word = ptrace(PTRACE_PEEKDATA, pid, (void *)(at + i), NULL);
        if (errno)
            fail("peek");
        memcpy(&word, (const char *)bytes + i, n - i < sizeof word ? n - i : sizeof word);
        if (ptrace(PTRACE_POKEDATA, pid, (void *)(at + i), (void *)word) < 0)
            fail("poke");
    }
}

/* A system call instruction of the process's vDSO, which falls back to the kernel. */
static uint64_t find_syscall(pid_t pid)
{
    char path[64], line[256], *dash;
    (void)snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    uint64_t from = 0, to = 0;
    while (maps && to == 0 && fgets(line, sizeof line, maps))
        if (strstr(line, "[vdso]")) {
            from = strtoull(line, &dash, 16);
            to = strtoull(dash + 1, NULL, 16);
        }
    if (maps)
        (void)fclose(maps);
    unsigned char code[sizeof(long)];
    for (uint64_t at = from; at + sizeof code <= to; at++) {
        errno = 0;
        long word = ptrace(PTRACE_PEEKTEXT, pid, (void *)at, NULL);
        memcpy(code, &word, sizeof code);
        if (errno == 0 && memcmp(code, syscall_insn, sizeof syscall_insn) == 0)
            return at;
    }
    (void)fprintf(stderr, "escape_inject: no system call in a vDSO\n");
    exit(2);
}

static uint64_t argument(pid_t pid, const struct user_regs_struct *regs, int i, const char *arg)
{
    if (arg[0] != '=')
        return strtoull(arg, NULL, 0);
    uint64_t at = (regs->rsp - BELOW_STACK - (uint64_t)i * TEXT_SLOT) & ~UINT64_C(15);
    poke(pid, at, arg + 1, strlen(arg + 1) + 1);
    return at;
}

/* Set up regs for the call; orig_rax -1 keeps the kernel from restarting what was interrupted. */
static void call_regs(pid_t pid, const struct user_regs_struct *saved, char **argv, int n,
                      struct user_regs_struct *regs)
{
    uint64_t args[ARGS] = {0};
    for (int i = 0; i < n; i++)
        args[i] = argument(pid, saved, i, argv[i + 1]);
    *regs = *saved;
    regs->rax = strtoull(argv[0], NULL, 0);
    regs->orig_rax = (unsigned long long)-1;
    regs->rdi = args[0], regs->rsi = args[1], regs->rdx = args[2];
    regs->r10 = args[3], regs->r8 = args[4], regs->r9 = args[5];
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc - 3 > ARGS)
        return 2;
    pid_t pid = (pid_t)strtol(argv[1], NULL, 10);
    struct user_regs_struct saved, regs;
    if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) < 0 || ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) < 0)
        fail("attach");
    await_stop(pid);
    if (ptrace(PTRACE_GETREGS, pid, NULL, &saved) < 0)
        fail("registers");
    call_regs(pid, &saved, argv + 2, argc - 3, &regs);

    regs.rip = find_syscall(pid);
    if (ptrace(PTRACE_SETREGS, pid, NULL, &regs) < 0 ||
        ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) < 0)
        fail("inject");
    await_stop(pid);
    if (ptrace(PTRACE_GETREGS, pid, NULL, &regs) < 0 ||
        ptrace(PTRACE_SETREGS, pid, NULL, &saved) < 0 || ptrace(PTRACE_DETACH, pid, NULL, NULL) < 0)
        fail("restore");
    (void)printf("%lld\n", (long long)regs.rax);
    return 0;
}
