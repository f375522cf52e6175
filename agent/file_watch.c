/* agent/file_watch.c - see agent/file_watch.h. */
#include "agent/file_watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "agent/file_list.h"
#include "agent/text.h"
#include "base/mem.h"
#include "base/util.h"

enum {
    PATH_TEXT = 4 * PATH_MAX + 1, /* every byte escaped */
    BATCH_MAX = 16,
    BATCH_BYTES = 32 * 1024, /* with one more change of 22 KiB it is below FILE_RESULT_MAX */
    CHANGE_FIXED = 80,       /* the numbers of a change, packed */
    READ_STEP = 64 * 1024,
    MOVE_WAIT_MS = 10, /* where a folder has moved to is told right behind that it has, or never */
    EVENTS = IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_MODIFY | IN_ATTRIB |
             IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK,
};

struct folder {
    int wd;
    char *path; /* below the one that is watched, which is "" */
};

/* A change and the storage of its strings. */
struct change {
    Cloche__V1__GuestChange message;
    struct file_entry entry;
    char path[PATH_TEXT];
};

struct watching {
    const struct file_plan *plan;
    int fd;
    struct folder *folders; /* by wd, rising */
    size_t n_folders;
    struct change *changes; /* BATCH_MAX */
    size_t n_changes, bytes;
    bool lost;
    char *moved; /* a folder that has left its place, until it is known where to; owned */
    uint32_t cookie;
    const char *end; /* of the events that were read */
};

/* Folders still to be looked into. */
struct pending {
    struct pending *next;
    char path[];
};

/* --- what it says ----------------------------------------------------------------------------- */

static void say(struct watching *w)
{
    Cloche__V1__GuestFileResult result;
    Cloche__V1__GuestChange *changes[BATCH_MAX];
    cloche__v1__guest_file_result__init(&result);
    for (size_t i = 0; i < w->n_changes; i++)
        changes[i] = &w->changes[i].message;
    result.changes = changes;
    result.n_changes = w->n_changes;
    result.lost = w->lost;
    result.more = true;
    file_send_result(w->plan, &result);
    w->n_changes = w->bytes = 0;
    w->lost = false;
}

static void say_what_there_is(struct watching *w)
{
    if (w->n_changes > 0 || w->lost)
        say(w);
}

/* False: the whole would be too long. */
static bool full_path(const struct watching *w, const char *path, char out[static PATH_MAX])
{
    const char *root = w->plan->op->path;
    int n = path[0] ? snprintf(out, PATH_MAX, "%s/%s", root, path)
                    : snprintf(out, PATH_MAX, "%s", root);
    return n > 0 && n < PATH_MAX;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void note(struct watching *w, Cloche__V1__GuestChangeKind kind, const char *path)
{
    if (file_is_temporary(name_of(path)))
        return;
    struct change *c = &w->changes[w->n_changes++];
    char full[PATH_MAX];
    cloche__v1__guest_change__init(&c->message);
    text_escape(path, c->path, sizeof c->path);
    c->message.kind = kind;
    c->message.path = c->path;
    if (w->plan->op->with_entries && full_path(w, path, full) &&
        file_entry_read(AT_FDCWD, full, &c->entry) == 0) {
        file_entry_name(&c->entry, name_of(path));
        c->message.entry = &c->entry.message;
    }
    w->bytes +=
        CHANGE_FIXED + strlen(c->path) +
        (c->message.entry ? strlen(c->entry.name) + strlen(c->entry.message.link_target) : 0);
    if (w->n_changes == BATCH_MAX || w->bytes >= BATCH_BYTES)
        say(w);
}

/* --- the folders ------------------------------------------------------------------------------ */

/* Where it is, or would be. */
static size_t place_of(const struct watching *w, int wd)
{
    size_t low = 0, high = w->n_folders;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (w->folders[middle].wd < wd)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct folder *find(const struct watching *w, int wd)
{
    size_t at = place_of(w, wd);
    return at < w->n_folders && w->folders[at].wd == wd ? &w->folders[at] : NULL;
}

static void drop(struct watching *w, struct folder *f)
{
    size_t at = (size_t)(f - w->folders);
    cl_free(f->path);
    w->n_folders--;
    memmove(f, f + 1, (w->n_folders - at) * sizeof *f);
}

static int add(struct watching *w, const char *path)
{
    char full[PATH_MAX];
    if (!full_path(w, path, full))
        return ENAMETOOLONG;
    int wd = inotify_add_watch(w->fd, full, (uint32_t)EVENTS | (path[0] ? IN_DONT_FOLLOW : 0U));
    if (wd < 0)
        return errno;
    char *copy = cl_strdup(path);
    struct folder *old = find(w, wd);
    if (!copy || (!old && w->n_folders == FILE_WATCH_FOLDERS))
        return copy ? ENOSPC : ENOMEM;
    if (old) {
        cl_free(old->path);
        old->path = copy;
        return 0;
    }
    size_t at = place_of(w, wd);
    memmove(&w->folders[at + 1], &w->folders[at], (w->n_folders - at) * sizeof *w->folders);
    w->folders[at] = (struct folder){wd, copy};
    w->n_folders++;
    return 0;
}

static struct pending *put_off(struct pending *todo, const char *folder, const char *name)
{
    size_t n = strlen(folder) + strlen(name) + 2;
    struct pending *p = cl_zalloc(sizeof *p + n);
    if (!p)
        _exit(1); /* the agent says so */
    (void)snprintf(p->path, n, "%s%s%s", folder, folder[0] ? "/" : "", name);
    p->next = todo;
    return p;
}

static bool is_folder(DIR *dir, const struct dirent *e)
{
    struct file_entry entry;
    if (e->d_type != DT_UNKNOWN)
        return e->d_type == DT_DIR;
    return file_entry_read(dirfd(dir), e->d_name, &entry) == 0 &&
           entry.message.type == CLOCHE__V1__GUEST_FILE_TYPE__GUEST_FILE_TYPE_DIRECTORY;
}

/* What is in the folder: its folders are put off, and all is told if `tell`. */
static struct pending *look_into(struct watching *w, const char *path, bool tell,
                                 struct pending *todo)
{
    char full[PATH_MAX], name[PATH_MAX];
    DIR *dir = full_path(w, path, full) ? opendir(full) : NULL;
    if (!dir)
        return todo;
    for (struct dirent *e; (e = readdir(dir));) {
        int n = snprintf(name, sizeof name, "%s%s%s", path, path[0] ? "/" : "", e->d_name);
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || n < 0 ||
            (size_t)n >= sizeof name)
            continue;
        if (tell)
            note(w, CLOCHE__V1__GUEST_CHANGE_KIND__GUEST_CHANGE_KIND_CREATED, name);
        if (is_folder(dir, e))
            todo = put_off(todo, path, e->d_name);
    }
    (void)closedir(dir);
    return todo;
}

/* The folder and all below it.  What goes away meanwhile, or may not be read, is left out below it.
 */
static int add_tree(struct watching *w, const char *path, bool tell)
{
    int error = add(w, path);
    struct pending *todo =
        error == 0 && w->plan->op->recursive ? look_into(w, path, tell, NULL) : NULL;
    while (todo) {
        struct pending *p = todo;
        todo = p->next;
        int below = add(w, p->path);
        if (below == 0)
            todo = look_into(w, p->path, tell, todo);
        else if (below == ENOSPC)
            error = ENOSPC;
        cl_free(p);
    }
    return error;
}

static bool is_below(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

/* It is not here any more. */
static void leave_moved(struct watching *w)
{
    for (size_t i = w->n_folders; w->moved && i-- > 0;) {
        if (!is_below(w->folders[i].path, w->moved))
            continue;
        (void)inotify_rm_watch(w->fd, w->folders[i].wd);
        drop(w, &w->folders[i]);
    }
    cl_free(w->moved);
    w->moved = NULL;
}

/* It is at `path` now: what happened in it meanwhile is told, so its watches go with it. */
static void follow_moved(struct watching *w, const char *path)
{
    for (size_t i = 0; i < w->n_folders; i++) {
        struct folder *f = &w->folders[i];
        if (!is_below(f->path, w->moved))
            continue;
        const char *below = f->path + strlen(w->moved);
        size_t n = strlen(path) + strlen(below) + 1;
        char *now = cl_zalloc(n);
        if (!now)
            _exit(1);
        (void)snprintf(now, n, "%s%s", path, below);
        cl_free(f->path);
        f->path = now;
    }
    cl_free(w->moved);
    w->moved = NULL;
}

/* --- what happens ----------------------------------------------------------------------------- */

static Cloche__V1__GuestChangeKind kind_of(uint32_t mask)
{
    return mask & (IN_CREATE | IN_MOVED_TO)
               ? CLOCHE__V1__GUEST_CHANGE_KIND__GUEST_CHANGE_KIND_CREATED
           : mask & IN_MODIFY     ? CLOCHE__V1__GUEST_CHANGE_KIND__GUEST_CHANGE_KIND_WRITTEN
           : mask & IN_DELETE     ? CLOCHE__V1__GUEST_CHANGE_KIND__GUEST_CHANGE_KIND_REMOVED
           : mask & IN_MOVED_FROM ? CLOCHE__V1__GUEST_CHANGE_KIND__GUEST_CHANGE_KIND_MOVED
                                  : CLOCHE__V1__GUEST_CHANGE_KIND__GUEST_CHANGE_KIND_ATTRIBUTES;
}

static const struct inotify_event *event_at(const char *at)
{
    return (const struct inotify_event *)(const void *)at;
}

/* Does one of the events from there on say where it is now? */
static bool moved_is_told(const struct watching *w, const char *at)
{
    for (; at < w->end; at += sizeof(struct inotify_event) + event_at(at)->len) {
        if (event_at(at)->mask & IN_MOVED_TO && event_at(at)->cookie == w->cookie)
            return true;
    }
    return false;
}

/* Of a folder below: 0, or why nothing can be told any more. */
static int take_folder(struct watching *w, const char *path, const struct inotify_event *e)
{
    if (e->mask & IN_MOVED_FROM) {
        leave_moved(w); /* another one */
        w->cookie = e->cookie;
        w->moved = cl_strdup(path);
        if (!w->moved)
            return ENOMEM;
        const char *rest = (const char *)e + sizeof *e + e->len;
        if (rest < w->end && !moved_is_told(w, rest))
            leave_moved(w);
    }
    if (e->mask & IN_MOVED_TO && w->moved && e->cookie == w->cookie) {
        follow_moved(w, path);
        return 0;
    }
    if (e->mask & (IN_CREATE | IN_MOVED_TO))
        return add_tree(w, path, true) == ENOSPC ? ENOSPC : 0;
    return 0;
}

/* The same, of what happened in a folder. */
static int take_of(struct watching *w, struct folder *f, const struct inotify_event *e)
{
    char path[PATH_MAX];
    if (e->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT))
        return f->path[0] ? 0 : ENOENT;
    if (e->mask & IN_IGNORED) {
        int error = f->path[0] ? 0 : ENOENT;
        drop(w, f);
        return error;
    }
    int n = snprintf(path, sizeof path, "%s%s%s", f->path, f->path[0] ? "/" : "",
                     e->len > 0 ? e->name : "");
    if (e->len == 0 || n < 0 || (size_t)n >= sizeof path)
        return 0; /* the folder's own mode: its parent tells it, if that is watched */
    note(w, kind_of(e->mask), path);
    return w->plan->op->recursive && e->mask & IN_ISDIR ? take_folder(w, path, e) : 0;
}

static int take(struct watching *w, const struct inotify_event *e)
{
    struct folder *f = find(w, e->wd);
    if (e->mask & IN_Q_OVERFLOW) { /* folders may have been made, too */
        w->lost = true;
        return add_tree(w, "", false);
    }
    return f ? take_of(w, f, e) : 0;
}

static int follow(struct watching *w)
{
    static _Alignas(struct inotify_event) char bytes[READ_STEP];
    for (;;) {
        ssize_t n = read(w->fd, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        w->end = bytes + n;
        if (w->moved && !moved_is_told(w, bytes))
            leave_moved(w);
        for (const char *at = bytes; at < w->end;) {
            int error = take(w, event_at(at));
            if (error) {
                say_what_there_is(w);
                return error;
            }
            at += sizeof(struct inotify_event) + event_at(at)->len;
        }
        say_what_there_is(w);
        struct pollfd more = {.fd = w->fd, .events = POLLIN};
        if (w->moved && poll(&more, 1, MOVE_WAIT_MS) == 0)
            leave_moved(w);
    }
}

int file_watch(const struct file_plan *plan)
{
    struct watching w = {.plan = plan, .fd = inotify_init1(IN_CLOEXEC)};
    if (w.fd < 0)
        return errno;
    w.folders = cl_zalloc_array(FILE_WATCH_FOLDERS, sizeof *w.folders);
    w.changes = cl_zalloc_array(BATCH_MAX, sizeof *w.changes);
    if (!w.folders || !w.changes)
        return ENOMEM;
    int error = add_tree(&w, "", false);
    if (error)
        return error;
    say(&w);
    return follow(&w); /* its process ends with it, which frees all */
}
