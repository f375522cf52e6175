/* agent/ids.h - who owns what in the guest: the one place with the numbers.
 *
 * All user code lives in one user namespace.  Its ids 0..29999 are the kernel's 30000..59999, its
 * nobody (65534) is 65533; the root file system is built with its owners moved by the same amount.
 * So root of that namespace owns the files and can install packages, while the kernel's uid 0 is
 * the agent alone.  The numbers fit 16 bits and an ordinary subuid range, so that an image can be
 * built without root; idmapped mounts would be nicer, but overlayfs on kernel 6.1 has none.
 */
#ifndef CL_AGENT_IDS_H
#define CL_AGENT_IDS_H

enum {
    AGENT_ID_BASE = 30000, /* the kernel's number for id 0 of user code */
    AGENT_ID_COUNT = 30000,
    AGENT_NOBODY = 65534,     /* in the namespace ... */
    AGENT_NOBODY_OUT = 65533, /* ... and outside */
    AGENT_USER_ID = 1000,     /* uid and gid of `user`, in the namespace */
    AGENT_TTY_GID = 5,
};

#endif
