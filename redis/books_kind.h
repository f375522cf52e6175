/* redis/books_kind.h - what a unit of the books is. */
#ifndef CL_REDIS_BOOKS_KIND_H
#define CL_REDIS_BOOKS_KIND_H

/* On the wire and in the records of the books. */
enum books_kind { BOOKS_JOB = 1, BOOKS_SANDBOX = 2, BOOKS_SNAPSHOT = 3 };

/* Of its ids (base/id.h). */
static inline const char *books_kind_prefix(enum books_kind kind)
{
    return kind == BOOKS_JOB ? "job" : kind == BOOKS_SANDBOX ? "sbx" : "snp";
}

/* For people, and in logs. */
static inline const char *books_kind_name(enum books_kind kind)
{
    return kind == BOOKS_JOB ? "job" : kind == BOOKS_SANDBOX ? "sandbox" : "snapshot";
}

#endif
