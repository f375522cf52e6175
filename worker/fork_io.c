/* worker/fork_io.c - see worker/fork.h. */
#include "worker/fork.h"

#include "base/mem.h"
#include "base/own.h"
#include "worker/disk.h"

struct fork {
    struct machine_host *host; /* borrowed; NULL = there is nothing to copy */
    struct machine_copy copy;  /* linked until there is a seed */
    struct seed *seed;         /* owned */
    struct disk_copy *disk;    /* owned: under way */
    struct machine *machine;   /* until it is up; its on_end tells of its end */
    struct cl_timer kick;      /* takes the next step, outside of every call */
    struct cl_err why;
    bool rests;
    fork_fn *fn; /* NULL once cancelled */
    void *arg;
};

static void fork_free(struct fork *f)
{
    cl_list_unlink(&f->copy.link);
    seed_unref(f->seed);
    disk_copy_free(f->disk);
    cl_timer_fini(&f->kick);
    cl_free(f);
}

static void answer(struct fork *f, struct machine *m, const struct cl_err *why)
{
    struct cl_err err = why ? *why : (struct cl_err){0};
    fork_fn *fn = f->fn;
    void *arg = f->arg;
    fork_free(f);
    if (fn)
        fn(arg, m, &err);
}

static void on_ready(void *arg)
{
    struct fork *f = arg;
    if (f->fn) /* else it is being stopped */
        answer(f, f->machine, NULL);
}

static void on_end(void *arg, const struct cl_err *why)
{
    answer(arg, NULL, why);
}

static void start_machine(struct fork *f, int disk)
{
    static const struct machine_events events = {.on_ready = on_ready, .on_end = on_end};
    const struct seed_share of = {f->seed, disk};
    struct cl_err err = {0};
    if ((f->rests ? machine_lay_down(f->host, &of, &events, f, &f->machine, &err)
                  : machine_start_copy(f->host, &of, &events, f, &f->machine, &err)) < 0) {
        answer(f, NULL, &err);
        return;
    }
    seed_unref(f->seed);
    f->seed = NULL;
}

static void on_disk(void *arg, int fd, const struct cl_err *err)
{
    struct fork *f = arg;
    disk_copy_free(f->disk);
    f->disk = NULL;
    if (err)
        answer(f, NULL, err);
    else
        start_machine(f, fd);
}

/* A disk of its own: the seed's, when nobody else needs that any more. */
static void take_disk(struct fork *f)
{
    const struct disk_copy_spec spec = {f->host->state_dir, f->seed->disk, on_disk, f};
    struct cl_err err = {0};
    if ((f->seed->refs == 1 && !f->seed->lends) || f->seed->disk < 0)
        start_machine(f, cl_steal_fd(&f->seed->disk));
    else if (disk_copy_start(f->host->loop, &spec, &f->disk, &err) < 0)
        answer(f, NULL, &err);
}

static void on_kick(void *arg)
{
    struct fork *f = arg;
    if (f->why.code)
        answer(f, NULL, &f->why);
    else
        take_disk(f);
}

static void on_copied(void *arg, struct seed *seed, const struct cl_err *err)
{
    struct fork *f = arg;
    if (err)
        f->why = *err;
    else
        f->seed = seed_ref(seed);
    cl_timer_start(&f->kick, 0);
}

int fork_start(struct cl_loop *loop, const struct fork_spec *spec, struct fork **ret_fork,
               struct cl_err *err)
{
    struct fork *f = cl_zalloc(sizeof *f);
    if (!f)
        return cl_fail(err, CL_E_NOMEM, 0, "fork");
    *f = (struct fork){.host = spec->of ? machine_host(spec->of) : NULL,
                       .copy = {.moment = spec->moment, .done = on_copied, .arg = f},
                       .rests = spec->rests,
                       .fn = spec->fn,
                       .arg = spec->arg};
    cl_list_init(&f->copy.link);
    if (cl_timer_init(&f->kick, loop, on_kick, f, err) < 0) {
        cl_free(f);
        return -1;
    }
    if (!spec->of)
        f->why = spec->why_not;
    if (!spec->of || machine_copy(spec->of, &f->copy, &f->why) < 0)
        cl_timer_start(&f->kick, 0);
    *ret_fork = f;
    return 0;
}

void fork_cancel(struct fork *f)
{
    f->fn = NULL;
    if (f->machine)
        machine_stop(f->machine); /* on_end frees it */
    else
        fork_free(f);
}
