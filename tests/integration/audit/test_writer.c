/* tests/integration/audit/test_writer.c - cloche-audit as a process: records, acks, kill -9,
 * secrets, the disk reserve.
 *
 * Usage: test_writer [kill rounds]; 50 by default, 1,000 before a release.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "audit/files.h"
#include "audit/producer.h"
#include "audit/redact.h"
#include "audit/verify.h"
#include "base/clock.h"
#include "base/fs.h"
#include "trail/walk.h"

enum { PATIENCE_S = 120 };

static char binary[512];
static long kill_rounds = 50;
static char dir[64], path_socket[128], path_key[128], path_pub[128], path_log[128], path_conf[128];
static pid_t writer;
static struct cl_loop *loop;
static struct audit_producer *producer;
static uint64_t acked, refused, heads;

static void write_conf(const char *reserve)
{
    char text[1024];
    int n = snprintf(text, sizeof text,
                     "[audit]\ndir = %s\nsocket = %s\nkey = %s\nrotate = 65536\ndisk_reserve = "
                     "%s\ncheckpoint = 20ms\n",
                     path_log, path_socket, path_key, reserve);
    assert_int_equal(cl_file_write(path_conf, text, (size_t)n, 0600, NULL), 0);
}

static void start_writer(void)
{
    writer = fork();
    assert_true(writer >= 0);
    if (writer > 0)
        return;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)umask(077); /* as `cloche up` has it */
    (void)execl(binary, binary, "--config", path_conf, (char *)NULL);
    _exit(127);
}

static int stop_writer(int signo)
{
    int status = 0;
    (void)kill(writer, signo);
    assert_int_equal(waitpid(writer, &status, 0), writer);
    return status;
}

static void on_ack(const struct cl_err *err, void *arg)
{
    (void)arg;
    if (err)
        refused++;
    else
        acked++;
}

static void on_head(uint64_t seq, const char *hash, void *arg)
{
    (void)seq, (void)hash, (void)arg;
    heads++;
}

static int emit_job(const char *tenant, uint64_t attempt, struct cl_err *err)
{
    struct audit_field f[] = {AUDIT_NUM("attempt", attempt), AUDIT_NUM("fence", 7),
                              AUDIT_STR("unit", "job_1"), AUDIT_STR("worker", "wrk_1")};
    return audit_emit(producer, tenant, AUDIT_UNIT_START, f, CL_COUNT(f), on_ack, NULL, err);
}

static void turns(uint64_t ns)
{
    uint64_t end = cl_now_ns() + ns;
    while (cl_now_ns() < end)
        cl_loop_turn(loop, CL_NS_PER_MS);
}

static void wait_drained(void)
{
    uint64_t end = cl_now_ns() + PATIENCE_S * CL_NS_PER_S;
    while (audit_producer_waiting(producer) > 0 && cl_now_ns() < end)
        cl_loop_turn(loop, CL_NS_PER_MS);
    assert_int_equal(audit_producer_waiting(producer), 0);
}

static struct audit_report verify(const char *head)
{
    struct audit_report r;
    struct cl_err err = {0};
    struct audit_verify_conf conf = {.dir = path_log, .public_key = path_pub, .expect_head = head};
    if (audit_verify_dir(&conf, &r, &err) < 0)
        fail_msg("%s", err.text);
    return r;
}

static void expect_ok(void)
{
    struct audit_report r = verify(NULL);
    if (r.verdict != AUDIT_OK)
        fail_msg("%s %lu %s +%lu: %s", r.stream, (unsigned long)r.seq, r.file,
                 (unsigned long)r.offset, r.reason);
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/cloche-audit-XXXXXX");
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path_socket, sizeof path_socket, "%s/s", dir);
    (void)snprintf(path_key, sizeof path_key, "%s/key", dir);
    (void)snprintf(path_pub, sizeof path_pub, "%s/key.pub", dir);
    (void)snprintf(path_log, sizeof path_log, "%s/log", dir);
    (void)snprintf(path_conf, sizeof path_conf, "%s/conf", dir);
    acked = refused = heads = 0;
    write_conf("0");
    start_writer();
    assert_int_equal(cl_loop_new(&loop, NULL), 0);
    /* A disk that others fill may take a sync for longer than a caller would wait. */
    struct audit_producer_conf conf = {.socket = path_socket,
                                       .source = "test",
                                       .on_head = on_head,
                                       .ack_timeout_ns = PATIENCE_S * CL_NS_PER_S};
    assert_int_equal(audit_producer_new(loop, &conf, &producer, NULL), 0);
    for (int i = 0; i < 1000 && !audit_is_healthy(producer, NULL); i++)
        cl_loop_turn(loop, 5 * CL_NS_PER_MS);
    return audit_is_healthy(producer, NULL) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    audit_producer_free(producer);
    cl_loop_turn(loop, 0);
    cl_loop_free(loop);
    if (writer > 0)
        (void)stop_writer(SIGKILL);
    return cl_remove_tree(dir, NULL);
}

/* --- tests ---------------------------------------------------------------------------------- */

static void test_records_are_acknowledged_signed_and_verify(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 300; i++)
        assert_int_equal(emit_job(i % 3 == 0 ? NULL : i % 3 == 1 ? "acme" : "beta", i, NULL), 0);
    wait_drained();
    assert_int_equal(acked, 300);
    turns(200 * CL_NS_PER_MS);
    assert_true(heads > 0);
    int status = stop_writer(SIGTERM);
    writer = 0;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    struct audit_report r = verify(NULL);
    assert_int_equal(r.verdict, AUDIT_OK);
    assert_int_equal(r.streams, 3);
    assert_int_equal(r.unsigned_tail, 0);
    assert_false(r.head_checked);
    char head[100];
    (void)snprintf(head, sizeof head, "%lu:%s", (unsigned long)r.host_seq, r.host_head);
    assert_true(verify(head).head_checked);
    head[strlen(head) - 1] ^= 1;
    assert_int_equal(verify(head).verdict, AUDIT_BAD);
}

static void expect_group_reads(void)
{
    static const char *const names[] = {"/host", "/tenant", "/tenant/acme",
                                        "/tenant/acme/00000001.log"};
    for (size_t i = 0; i < CL_COUNT(names); i++) {
        char path[AUDIT_PATH];
        struct stat st;
        (void)snprintf(path, sizeof path, "%s%s", path_log, names[i]);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, S_ISDIR(st.st_mode) ? 0750 : 0640);
        /* for the next round: as an earlier release left them */
        assert_int_equal(chmod(path, S_ISDIR(st.st_mode) ? 0700 : 0600), 0);
    }
}

/* cloche-audit-reader is another user of the same group. */
static void test_the_group_may_read_and_nobody_else(void **state)
{
    (void)state;
    assert_int_equal(emit_job("acme", 1, NULL), 0);
    wait_drained();
    expect_group_reads();
    (void)stop_writer(SIGTERM);
    start_writer();
    for (int i = 0; i < 1000 && !audit_is_healthy(producer, NULL); i++)
        cl_loop_turn(loop, 5 * CL_NS_PER_MS);
    assert_int_equal(emit_job("acme", 2, NULL), 0);
    wait_drained();
    expect_group_reads();
}

static void test_a_cut_or_missing_tenant_stream_is_found_by_the_host_stream(void **state)
{
    (void)state;
    char path[AUDIT_PATH], gone[AUDIT_PATH + 8];
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(emit_job("acme", i, NULL), 0);
    wait_drained();
    (void)stop_writer(SIGTERM);
    writer = 0;
    expect_ok();
    audit_file_path(path_log, "tenant/acme", 1, path);
    const char *data;
    size_t n;
    assert_int_equal(audit_file_map(path, &data, &n, NULL), 0);
    size_t cut = n - 1;
    while (cut > 0 && data[cut - 1] != '\n')
        cut--;
    audit_file_unmap(data, n);
    assert_int_equal(truncate(path, (off_t)cut), 0);
    struct audit_report r = verify(NULL);
    assert_int_equal(r.verdict, AUDIT_BAD);
    assert_non_null(strstr(r.reason, "cut"));
    (void)snprintf(gone, sizeof gone, "%s/tenant", path_log);
    assert_int_equal(cl_remove_tree(gone, NULL), 0);
    r = verify(NULL);
    assert_int_equal(r.verdict, AUDIT_BAD);
    assert_non_null(strstr(r.reason, "missing"));
}

static void test_a_torn_tail_exits_3_until_the_writer_cut_it_and_said_so(void **state)
{
    (void)state;
    char path[AUDIT_PATH];
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(emit_job("acme", i, NULL), 0);
    wait_drained();
    turns(100 * CL_NS_PER_MS);
    (void)stop_writer(SIGKILL);
    audit_file_path(path_log, "tenant/acme", 1, path);
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(write(fd, "{\"assurance\":\"H0\",\"ep", 21), 21);
    (void)close(fd);
    assert_int_equal(verify(NULL).verdict, AUDIT_TORN);
    start_writer();
    turns(300 * CL_NS_PER_MS);
    struct audit_report r = verify(NULL);
    assert_int_equal(r.verdict, AUDIT_OK);
    assert_int_equal(r.recovered, 1);
}

static void test_kill_9_under_load_loses_and_doubles_nothing(void **state)
{
    (void)state;
    uint64_t sent = 0;
    for (long round = 0; round < kill_rounds; round++) {
        uint64_t end = cl_now_ns() + 15 * CL_NS_PER_MS;
        while (cl_now_ns() < end) {
            for (int i = 0; i < 20; i++) {
                if (emit_job(sent % 2 ? "acme" : NULL, sent, NULL) == 0)
                    sent++;
            }
            cl_loop_turn(loop, CL_NS_PER_MS);
        }
        (void)stop_writer(SIGKILL);
        start_writer();
        for (int i = 0; i < 1000 && !audit_is_healthy(producer, NULL); i++)
            cl_loop_turn(loop, 5 * CL_NS_PER_MS);
    }
    wait_drained();
    turns(100 * CL_NS_PER_MS);
    (void)stop_writer(SIGTERM);
    writer = 0;
    assert_int_equal(refused, 0);
    assert_int_equal(acked, sent);
    struct audit_report r = verify(NULL);
    expect_ok();
    print_message("%ld kills: %lu records sent, %lu acknowledged; %lu in the log with %lu "
                  "checkpoints, %lu recovered\n",
                  kill_rounds, (unsigned long)sent, (unsigned long)acked, (unsigned long)r.records,
                  (unsigned long)r.checkpoints, (unsigned long)r.recovered);
    /* Exactly once: what is there is what was sent, and the writer's own records: one stream.open a
     * stream, the checkpoints, a tenant.checkpoint for each of the tenant's. */
    unsigned first, last;
    assert_int_equal(audit_file_range(path_log, "tenant/acme", &first, &last, NULL), 0);
    uint64_t found = 0;
    static const char *const streams[] = {"tenant/acme", "host/local"};
    for (size_t s = 0; s < 2; s++) {
        assert_int_equal(audit_file_range(path_log, streams[s], &first, &last, NULL), 0);
        for (unsigned i = first; i <= last; i++) {
            char path[AUDIT_PATH];
            const char *data;
            size_t n;
            audit_file_path(path_log, streams[s], i, path);
            assert_int_equal(audit_file_map(path, &data, &n, NULL), 0);
            for (const char *at = data;
                 (at = memmem(at, n - (size_t)(at - data), "\"event\":\"unit.start\"", 20)) != NULL;
                 at++)
                found++;
            audit_file_unmap(data, n);
        }
    }
    assert_int_equal(found, sent);
}

struct seen {
    int secrets, records;
};

static int look(void *arg, const struct audit_record *r, const char *line, size_t n,
                struct cl_err *err)
{
    (void)r, (void)err;
    struct seen *seen = arg;
    seen->secrets += memmem(line, n, "hunter2", 7) != NULL;
    seen->records++;
    return 0;
}

static void test_seeded_secrets_never_reach_the_log(void **state)
{
    (void)state;
    static const char *const argv[] = {"curl",
                                       "-H",
                                       "Authorization: Bearer hunter2",
                                       "--token=hunter2",
                                       "X_TOKEN=hunter2",
                                       "--password",
                                       "hunter2",
                                       "API-KEY:hunter2",
                                       "ok"};
    uint8_t salt[AUDIT_SALT] = {1};
    struct cl_arena *arena;
    const char **clean;
    assert_int_equal(cl_arena_new(65536, &arena, NULL), 0);
    assert_int_equal(audit_redact_argv(arena, salt, "acme", argv, CL_COUNT(argv), &clean, NULL), 0);
    assert_string_equal(clean[0], "curl");
    assert_string_equal(clean[5], "--password");
    assert_string_equal(clean[8], "ok");
    struct audit_field f[] = {AUDIT_LIST("argv", clean, CL_COUNT(argv)), AUDIT_STR("cwd", "/"),
                              AUDIT_STR("exec", "exec_1"), AUDIT_NUM("uid", 1000),
                              AUDIT_STR("unit", "job_1")};
    assert_int_equal(
        audit_emit(producer, "acme", AUDIT_EXEC_START, f, CL_COUNT(f), on_ack, NULL, NULL), 0);
    wait_drained();
    cl_arena_free(arena);
    struct seen seen = {0};
    CL_AUTO(walk_freep) struct walk *w = NULL;
    assert_int_equal(walk_new(path_log, &(struct walk_filter){.stream = "tenant/acme"}, &w, NULL),
                     0);
    assert_int_equal(walk_all(w, look, &seen, NULL), 0);
    assert_int_equal(seen.secrets, 0);
    assert_true(seen.records > 0);
}

static void test_below_the_reserve_the_writer_refuses_and_heals_by_itself(void **state)
{
    (void)state;
    struct cl_err err = {0};
    const char *why;
    write_conf("1000000GiB");
    (void)kill(writer, SIGHUP);
    for (int i = 0; i < 400 && audit_is_healthy(producer, NULL); i++)
        cl_loop_turn(loop, 5 * CL_NS_PER_MS);
    assert_false(audit_is_healthy(producer, &why));
    assert_non_null(strstr(why, "reserve"));
    assert_int_equal(emit_job("acme", 1, &err), -1);
    assert_int_equal(err.code, CL_E_UNAVAILABLE);
    struct audit_field f[] = {AUDIT_STR("reason", "x"), AUDIT_STR("worker", "wrk_1")};
    assert_int_equal(audit_emit(producer, NULL, AUDIT_WORKER_LOST, f, 2, NULL, NULL, NULL), 0);
    write_conf("0");
    (void)kill(writer, SIGHUP);
    for (int i = 0; i < 400 && !audit_is_healthy(producer, NULL); i++)
        cl_loop_turn(loop, 5 * CL_NS_PER_MS);
    assert_true(audit_is_healthy(producer, NULL));
    wait_drained();
    assert_int_equal(emit_job("acme", 1, NULL), 0);
    wait_drained();
    assert_int_equal(acked, 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_group_may_read_and_nobody_else, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_records_are_acknowledged_signed_and_verify, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_cut_or_missing_tenant_stream_is_found_by_the_host_stream, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_torn_tail_exits_3_until_the_writer_cut_it_and_said_so, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_kill_9_under_load_loses_and_doubles_nothing, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_seeded_secrets_never_reach_the_log, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_below_the_reserve_the_writer_refuses_and_heals_by_itself, set_up, tear_down),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc > 1)
        kill_rounds = strtol(argv[1], NULL, 10);
    const char *from_env = getenv("CLOCHE_AUDIT");
    (void)snprintf(binary, sizeof binary, "%s", from_env ? from_env : CLOCHE_AUDIT_BINARY);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
