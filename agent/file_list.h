/* agent/file_list.h - folder listings in byte order, page by page.
 *
 * Owns:    at most twice the limit of names, whatever the folder holds.
 * Runs in a helper process with the user's rights, which ends afterwards and frees by ending.
 */
#ifndef CL_AGENT_FILE_LIST_H
#define CL_AGENT_FILE_LIST_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "cloche/v1/guest.pb-c.h"

enum { FILE_NAME_TEXT = 4 * NAME_MAX + 1 }; /* every byte escaped */

/* One entry and the storage of its strings. */
struct file_entry {
    Cloche__V1__GuestFileEntry message;
    char name[FILE_NAME_TEXT];
    char target[PATH_MAX];
};

/* 0 or an errno.  The name is set by file_entry_name(). */
int file_entry_read(int dir_fd, const char *path, struct file_entry *entry);
void file_entry_name(struct file_entry *entry, const char *name);

struct file_list {
    int dir_fd;
    char **names; /* sorted */
    size_t n;
};

/* The first `limit` names after `after`.  0 or an errno. */
int file_list_read(const char *path, const char *after, size_t limit, struct file_list *list);
/* Fill one result from names[at..]; returns the next `at`.  The entries live until the next call.
 */
size_t file_list_page(const struct file_list *list, size_t at, Cloche__V1__GuestFileResult *result);

#endif
