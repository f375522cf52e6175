/* worker/template.h - one flavour (name, memory, vCPUs) of what VMs are made from.
 *
 * Owns:    the fds of the image's files, the sealed RAM and the device state of the snapshot.
 * Shared:  by reference count; a VM holds one until it is gone.
 * Thread:  the worker loop.
 * The manifest is checked (signature, digests) before any byte of the image is used.  Reading the
 * manifest is pure (template_parse); opening is in template_open().
 */
#ifndef CL_WORKER_TEMPLATE_H
#define CL_WORKER_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "base/util.h"
#include "worker/image_files.h"
#include "worker/monitor_build.h"

struct vm_driver;
struct rest;

enum {
    TEMPLATE_FILE_MAX = 48,
    TEMPLATE_NAME_MAX = 64,
    TEMPLATE_IMAGE = 256,
    TEMPLATE_HEX = 65, /* SHA-256 in hex and its NUL */
    TEMPLATE_MAC = 32, /* HMAC-SHA-256 */
    TEMPLATE_CMDLINE_MAX = 1024,
    TEMPLATE_WARMUPS_MAX = 8, /* commands run before the snapshot */
    TEMPLATE_ARGV_MAX = 16,
    TEMPLATE_MANIFEST_MAX = 65536,
    TEMPLATE_CONTEXTS_MAX = 4, /* code contexts started before the snapshot */
    TEMPLATE_VERSION = 1,      /* newest manifest that we read */
    TEMPLATE_KEYS_MAX = 64,    /* public keys that are trusted */
    TEMPLATE_BUILD = 17,       /* the name of a build's folder, and its NUL */
};

struct template_warmup {
    char *argv[TEMPLATE_ARGV_MAX + 1]; /* owned; NULL-terminated */
};

enum template_language { /* numbers of Language, code.proto */
                         TEMPLATE_PYTHON = 1,
                         TEMPLATE_BASH,
                         TEMPLATE_JAVASCRIPT,
};

/* A default context that is there when a clone starts; its id is the language's name. */
struct template_context {
    enum template_language language;
    const char *id; /* static */
    char *preload;  /* owned: run once, before the snapshot; "" = nothing */
    char *warm_up;  /* owned: run in every clone too; it leaves no trace */
};

/* What the manifest says. */
struct template_manifest {
    char sha256[TEMPLATE_HEX]; /* of its text, by template_open() */
    char name[TEMPLATE_NAME_MAX];
    char image_key[TEMPLATE_HEX];
    char verity_root[TEMPLATE_HEX];
    char kernel_version[64];
    char image[TEMPLATE_IMAGE]; /* of a registry, that it was made of; "" = none */
    char cmdline[TEMPLATE_CMDLINE_MAX];
    char kernel_sha256[TEMPLATE_HEX], initrd_sha256[TEMPLATE_HEX], rootfs_sha256[TEMPLATE_HEX];
    char scratch_sha256[TEMPLATE_HEX]; /* of the empty scratch file system; "" = an older image,
                                          whose writable layer is in its memory */
    uint32_t protocol_major;
    uint32_t default_memory_mib, default_vcpus;
    struct template_warmup warmups[TEMPLATE_WARMUPS_MAX];
    size_t n_warmups;
    struct template_context contexts[TEMPLATE_CONTEXTS_MAX];
    size_t n_contexts;
};

struct template
{
    int refs;
    struct template_manifest m;
    uint32_t memory_mib, vcpus;
    bool network;                        /* its VMs have a network card */
    bool dials;                          /* its agent connects to ports: its Hello said so */
    bool holds;                          /* its agent can be held, so its clones can be copied */
    bool cell_env;                       /* its agent takes variables of one cell */
    const struct vm_driver *driver;      /* static: what runs its VMs */
    struct monitor_build monitor;        /* ... and the build, for the drivers of cloche-vmm */
    char snapshot_key[TEMPLATE_HEX];     /* over exactly what a snapshot depends on */
    char boot_key[TEMPLATE_HEX];         /* the same without the frequency of the TSC, which each
                                            process measures anew */
    uint64_t tsc_khz;                    /* as its maker measured it */
    int build_fd;                        /* owned: its folder, locked (shared): in use */
    int kernel_fd, initrd_fd, rootfs_fd; /* owned */
    int scratch_fd;                      /* owned: what the booted VM's disk starts from */
    bool is_checked;                     /* these are what the manifest names */
    int disk_fd;                         /* owned: that disk, what clones' disks start from */
    int ram_fd;                          /* owned: memfd, sealed once the snapshot is made; -1 = it
                                            is in `file` (worker/template_file.h) */
    int state_fd;                        /* owned: memfd with the device state */
    uint8_t state_mac[TEMPLATE_MAC];     /* of the driver that needs one (worker/state_mac.h) */
    bool sealed;
    struct rest *file;                 /* owned: its RAM for other processes; NULL = none */
    const char *file_dir;              /* borrowed: where it is */
    char file_name[TEMPLATE_FILE_MAX]; /* of that, there */
    struct cl_list file_waiters;       /* of struct template_waiter */
    bool is_filing;                    /* it is written or read just now */
};

/* Parse a manifest; pure, bounded.  INVALID names the field. */
int template_parse(const char *json, size_t n, struct template_manifest *ret_manifest,
                   struct cl_err *err) CL_MUST;
void template_manifest_fini(struct template_manifest *m);

/* Two measurements of one frequency: each process makes its own, a busy one less well.  A processor
 * that is another differs by more, or in its name. */
bool template_is_about_tsc(uint64_t a_khz, uint64_t b_khz);

/* Which build of a template DIR/NAME/current leads to; "" = it is not there, "-" = it is no link.
 */
void template_current(const char *dir, const char *name, char ret_build[static TEMPLATE_BUILD]);

/* What makes VMs of a template; the snapshot depends on it as on the image. */
struct template_maker {
    const struct vm_driver *driver; /* static */
    const char *vmm_build;
    const struct monitor_build *monitor; /* borrowed; NULL = QEMU */
    const char *cpu; /* model and features that the guest sees of the host's; "" = none (TCG) */
    uint64_t tsc_khz;
};
/* Fill t->snapshot_key and t->boot_key from the manifest, the flavour and the maker (pure). */
void template_compute_keys(struct template *t, const struct template_maker *maker);

/* Open DIR/NAME/current, or another build of it: check the signature with the public keys in a file
 * (PEM, one after the other; one must fit) and, unless later, each file's digest.  memory_mib /
 * vcpus of 0 take the defaults. */
struct template_request {
    const char *dir, *name, *public_keys;
    const char *image_key; /* of the build that must be opened; NULL = the current one */
    uint32_t memory_mib, vcpus;
    bool network; /* with a network card */
    const struct template_maker *maker;
    struct image_files *files; /* borrowed; NULL = each file is read */
    bool check_later;          /* by template_check(), before any of them is used */
};
/* ... Its folder is locked, shared, for as long as the template is: nobody takes it away meanwhile
 * (cli/prune.c). */
int template_open(const struct template_request *request, struct template **ret_template,
                  struct cl_err *err) CL_MUST;
/* Check its files, by turns; then it is checked.  It may not go before that is done or cancelled.
 */
int template_check(struct template *t, struct image_files *files, image_check_fn *done, void *arg,
                   struct image_check **ret_check, struct cl_err *err) CL_MUST;
struct template *template_ref(struct template *t);
void template_unref(struct template *t);

/* Make the RAM file and the state file of a snapshot to be (empty, writable); one that is there is
 * forgotten, but by those who have its files. */
int template_prepare(struct template *t, struct cl_err *err) CL_MUST;
/* The snapshot is in them: no process can write them from now on. */
int template_seal(struct template *t, struct cl_err *err) CL_MUST;

#endif
