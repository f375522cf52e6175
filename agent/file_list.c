/* agent/file_list.c - see agent/file_list.h. */
#include "agent/file_list.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/text.h"
#include "base/mem.h"
#include "base/util.h"

enum {
    PAGE_ENTRIES = 200,
    PAGE_BYTES = 48 * 1024, /* below FILE_RESULT_MAX even after one more entry of 5 KiB */
    ENTRY_FIXED = 64,       /* the numbers of an entry, packed */
};

static Cloche__V1__GuestFileType type_of(mode_t mode)
{
    if (S_ISREG(mode))
        return CLOCHE__V1__GUEST_FILE_TYPE__GUEST_FILE_TYPE_REGULAR;
    if (S_ISDIR(mode))
        return CLOCHE__V1__GUEST_FILE_TYPE__GUEST_FILE_TYPE_DIRECTORY;
    if (S_ISLNK(mode))
        return CLOCHE__V1__GUEST_FILE_TYPE__GUEST_FILE_TYPE_SYMLINK;
    return CLOCHE__V1__GUEST_FILE_TYPE__GUEST_FILE_TYPE_OTHER;
}

int file_entry_read(int dir_fd, const char *path, struct file_entry *entry)
{
    struct stat st;
    if (fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno;
    cloche__v1__guest_file_entry__init(&entry->message);
    entry->message.type = type_of(st.st_mode);
    entry->message.size = (uint64_t)st.st_size;
    entry->message.mode = st.st_mode & 07777;
    entry->message.uid = st.st_uid;
    entry->message.gid = st.st_gid;
    entry->message.modified_ns =
        (uint64_t)st.st_mtim.tv_sec * CL_NS_PER_S + (uint64_t)st.st_mtim.tv_nsec;
    if (S_ISLNK(st.st_mode)) {
        char target[PATH_MAX];
        ssize_t n = readlinkat(dir_fd, path, target, sizeof target - 1);
        target[n < 0 ? 0 : n] = '\0';
        text_escape(target, entry->target, sizeof entry->target);
        entry->message.link_target = entry->target;
    }
    return 0;
}

void file_entry_name(struct file_entry *entry, const char *name)
{
    text_escape(name, entry->name, sizeof entry->name);
    entry->message.name = entry->name;
}

static int by_bytes(const void *a, const void *b)
{
    const char *const *x = a;
    const char *const *y = b;
    return strcmp(*x, *y);
}

static void keep_first(struct file_list *list, size_t limit)
{
    qsort(list->names, list->n, sizeof *list->names, by_bytes);
    for (size_t i = limit; i < list->n; i++)
        cl_free(list->names[i]);
    list->n = CL_MIN(list->n, limit);
}

int file_list_read(const char *path, const char *after, size_t limit, struct file_list *list)
{
    DIR *dir = opendir(path);
    if (!dir)
        return errno;
    *list = (struct file_list){.dir_fd = dirfd(dir)};
    list->names = cl_zalloc_array(2 * limit, sizeof *list->names);
    if (!list->names)
        return ENOMEM;
    for (struct dirent *e; (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            (after[0] && strcmp(e->d_name, after) <= 0))
            continue;
        if (list->n == 2 * limit)
            keep_first(list, limit);
        list->names[list->n] = cl_strdup(e->d_name);
        if (!list->names[list->n++])
            return ENOMEM;
    }
    keep_first(list, limit);
    return 0;
}

size_t file_list_page(const struct file_list *list, size_t at, Cloche__V1__GuestFileResult *result)
{
    static struct file_entry entries[PAGE_ENTRIES];
    static Cloche__V1__GuestFileEntry *pointers[PAGE_ENTRIES];
    size_t n = 0, bytes = 0;
    for (; at < list->n && n < PAGE_ENTRIES && bytes < PAGE_BYTES; at++) {
        if (file_entry_read(list->dir_fd, list->names[at], &entries[n]) != 0)
            continue; /* it went away meanwhile */
        file_entry_name(&entries[n], list->names[at]);
        pointers[n] = &entries[n].message;
        bytes += ENTRY_FIXED + strlen(entries[n].name) + strlen(entries[n].message.link_target);
        n++;
    }
    result->entries = pointers;
    result->n_entries = n;
    return at;
}
