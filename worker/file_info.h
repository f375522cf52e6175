/* worker/file_info.h - what an agent says of a file, as clients hear it.  Pure. */
#ifndef CL_WORKER_FILE_INFO_H
#define CL_WORKER_FILE_INFO_H

#include "cloche/v1/file.pb-c.h"
#include "cloche/v1/guest.pb-c.h"

struct file_info {
    Cloche__V1__FileInfo message;
    Cloche__V1__Time modified;
};

/* Borrows the entry's strings. */
static inline void file_info_fill(struct file_info *info, const Cloche__V1__GuestFileEntry *e)
{
    cloche__v1__file_info__init(&info->message);
    cloche__v1__time__init(&info->modified);
    info->modified.unix_ns = e->modified_ns;
    info->message.name = e->name;
    info->message.type = (Cloche__V1__FileType)e->type; /* the same numbers */
    info->message.size = e->size;
    info->message.mode = e->mode;
    info->message.uid = e->uid;
    info->message.gid = e->gid;
    info->message.modified = &info->modified;
    info->message.link_target = e->link_target;
}

#endif
