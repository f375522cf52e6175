/* agent/language.c - see agent/language.h.  The texts are agent/runners, put in by CMake. */
#include "agent/language.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/own.h"

/* Made by cmake/embed.cmake. */
extern const uint8_t runner_python[];
extern const size_t runner_python_size;
extern const uint8_t runner_bash[];
extern const size_t runner_bash_size;
extern const uint8_t runner_javascript[];
extern const size_t runner_javascript_size;

static const struct language languages[] = {
    {
        .id = CLOCHE__V1__GUEST_LANGUAGE__GUEST_LANGUAGE_PYTHON,
        .argv = {"python3", LANGUAGE_DIR "/python.py", NULL},
        .file = "python.py",
        .text = runner_python,
        .len = &runner_python_size,
    },
    {
        /* What bash has to say about having no terminal is not for the first cell. */
        .id = CLOCHE__V1__GUEST_LANGUAGE__GUEST_LANGUAGE_BASH,
        .argv = {"bash", "-c",
                 "exec bash --noprofile --noediting --rcfile " LANGUAGE_DIR
                 "/bash.sh -i 4>&2 2>/dev/null",
                 NULL},
        .file = "bash.sh",
        .text = runner_bash,
        .len = &runner_bash_size,
        .group = true,
    },
    {
        .id = CLOCHE__V1__GUEST_LANGUAGE__GUEST_LANGUAGE_JAVASCRIPT,
        .argv = {"node", LANGUAGE_DIR "/javascript.js", NULL},
        .file = "javascript.js",
        .text = runner_javascript,
        .len = &runner_javascript_size,
    },
};

const struct language *language_find(Cloche__V1__GuestLanguage id)
{
    for (size_t i = 0; i < CL_COUNT(languages); i++)
        if (languages[i].id == id)
            return &languages[i];
    return NULL;
}

/* User code's root owns nothing of this: it is the kernel's. */
int language_install(struct cl_err *err)
{
    if (mkdir(LANGUAGE_DIR, 0755) < 0 && errno != EEXIST)
        return cl_fail(err, CL_E_SYS, errno, "make " LANGUAGE_DIR);
    CL_AUTO(cl_closep) int dir = open(LANGUAGE_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return cl_fail(err, CL_E_SYS, errno, "open " LANGUAGE_DIR);
    for (size_t i = 0; i < CL_COUNT(languages); i++) {
        const struct language *l = &languages[i];
        CL_AUTO(cl_closep)
        int fd = openat(dir, l->file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
        if (fd < 0)
            return cl_fail(err, CL_E_SYS, errno, "create runner %s", l->file);
        if (cl_write_all(fd, l->text, *l->len, err) < 0)
            return cl_wrap(err, "runner %s", l->file);
    }
    return 0;
}
