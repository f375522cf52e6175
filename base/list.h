/* base/list.h - an intrusive doubly linked list.  A node is in at most one list; an unlinked node
 * points to itself, so unlinking twice is harmless. */
#ifndef CL_BASE_LIST_H
#define CL_BASE_LIST_H

#include <stdbool.h>

#include "base/util.h"

struct cl_list {
    struct cl_list *next, *prev; /* borrowed: the neighbours, or the head itself */
};

static inline void cl_list_init(struct cl_list *l)
{
    l->next = l->prev = l;
}

static inline bool cl_list_empty(const struct cl_list *l)
{
    return l->next == l;
}

/* Insert node before `at`; with the list head as `at` that is the tail. */
static inline void cl_list_insert(struct cl_list *at, struct cl_list *node)
{
    node->prev = at->prev;
    node->next = at;
    at->prev->next = node;
    at->prev = node;
}

static inline void cl_list_push(struct cl_list *head, struct cl_list *node)
{
    cl_list_insert(head, node);
}

static inline void cl_list_push_front(struct cl_list *head, struct cl_list *node)
{
    cl_list_insert(head->next, node);
}

static inline void cl_list_unlink(struct cl_list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    cl_list_init(node);
}

#define CL_LIST_ENTRY(node, type, member) CL_CONTAINER(node, type, member)

/* Iterate; the current node may be unlinked and freed in the body. */
#define CL_LIST_FOREACH(it, head) \
    for (struct cl_list *it = (head)->next, *it##_next = it->next; it != (head); \
         it = it##_next, it##_next = it->next)

#endif
