/* observability/daemon.c - see observability/daemon.h. */
#include "observability/daemon.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/notify.h"
#include "observability/log.h"

/* The process's own command line; like arg_* of a main(), set once. */
static struct cl_conf_source source;
static const struct daemon *self;
static char *words[CL_CONF_ARGS];
static struct daemon_life life;
static bool stopping;

static int set_log_level(struct cl_err *err)
{
    enum log_level level;
    if (log_level_parse(self->log_level, &level, err) < 0)
        return -1;
    log_init(self->name, level);
    return 0;
}

static void on_reload(int signo, void *arg)
{
    (void)signo, (void)arg;
    struct cl_err err = {0};
    if (cl_conf_reload(&source, self->values, &err) < 0 || set_log_level(&err) < 0 ||
        (life.reload && life.reload(life.arg, &err) < 0))
        log_event(LOG_CONFIG_REFUSED, "text='%s'", err.text);
    else
        log_event(LOG_CONFIG_RELOADED, "file='%s'", source.path ? source.path : "");
}

static void end_loop(void *loop)
{
    cl_loop_stop(loop);
}

static void on_end(int signo, void *arg)
{
    (void)arg;
    log_event(LOG_STOPPING, "signal=%d", signo);
    cl_notify("STOPPING=1");
    if (life.stop && !stopping)
        life.stop(life.arg, end_loop, life.loop);
    else
        end_loop(life.loop);
    stopping = true;
}

int daemon_take_signals(const struct daemon_life *its_life, struct cl_err *err)
{
    life = *its_life;
    if (cl_loop_on_signal(life.loop, SIGTERM, on_end, NULL, err) < 0 ||
        cl_loop_on_signal(life.loop, SIGINT, on_end, NULL, err) < 0)
        return -1;
    if (cl_loop_on_signal(life.loop, SIGHUP, on_reload, NULL, err) < 0)
        return -1;
    cl_notify("READY=1");
    return 0;
}

static int help(void)
{
    (void)printf("cloche-%s - %s\n\nusage: cloche-%s [--config FILE] [--check-config] [--OPTION "
                 "VALUE ...]\n",
                 self->name, self->brief, self->name);
    cl_conf_help(self->rows, self->n_rows, stdout);
    return 0;
}

static int configure(int argc, char **argv, struct cl_err *err)
{
    if (cl_conf_load(self->rows, self->n_rows, self->values, source.path, &argc, argv, err) < 0)
        return -1;
    if (argc > 1)
        return cl_fail(err, CL_E_INVALID, 0, "unexpected argument '%s' (see --help)", argv[1]);
    if (set_log_level(err) < 0)
        return -1;
    return self->check ? self->check(self->values, err) : 0;
}

int daemon_main(const struct daemon *d, int argc, char **argv)
{
    struct cl_err err = {0};
    bool check_only = false;
    const char *config = NULL;
    self = d;
    log_init(d->name, LOG_INFO);
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return help();
    cl_conf_take_common(&argc, argv, &config, &check_only);
    if (argc > CL_CONF_ARGS) {
        (void)fprintf(stderr, "cloche-%s: more than %d words\n", d->name, CL_CONF_ARGS);
        return 2;
    }
    memcpy(words, argv, (size_t)argc * sizeof *words); /* loading takes argv apart */
    source = (struct cl_conf_source){d->rows, d->n_rows, d->size, config, argc, words, d->check};
    (void)signal(SIGPIPE, SIG_IGN);
    cl_notify_open();
    int rc = configure(argc, argv, &err);
    if (rc == 0 && !check_only)
        rc = d->run(&err);
    if (rc == 0)
        return 0;
    cl_notify_status("%s", err.text);
    log_event(LOG_FATAL, "text='%s' remedy='%s'", err.text, cl_err_info(err.code)->remedy);
    return 1;
}
