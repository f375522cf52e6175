/* worker/watch.c - see worker/watch.h. */
#include "worker/watch.h"

#include "base/util.h"
#include "policy/quota.h"

void watch_note(struct watch *watch, const Cloche__V1__GuestEvents *batch)
{
    watch->came += batch->n_events;
    watch->lost = CL_MAX(watch->lost, batch->lost);
    watch->seen = CL_MAX(watch->seen, batch->seen);
}

void watch_note_number(struct watch *watch, uint64_t number)
{
    watch->came++;
    watch->seen = CL_MAX(watch->seen, number);
}

enum watch_class watch_class_of(const Cloche__V1__GuestEvent *event)
{
    switch ((int)event->kind) { /* of the guest: any value */
    case CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_WRITE:
    case CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_REMOVE:
    case CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_RENAME:
    case CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_TRUNCATE:
        return WATCH_MANY;
    case CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_READ:
        return WATCH_READS;
    default:
        return WATCH_FEW;
    }
}

bool watch_admits(struct watch *watch, const struct watch_limits *limits, enum watch_class class,
                  uint64_t now_us)
{
    uint64_t retry_us;
    if (limits->burst > 0 &&
        gcra_step(&watch->tat_us[class], now_us, limits->interval_us, limits->burst, &retry_us))
        return true;
    watch->over++;
    return false;
}

void watch_unheard(struct watch *watch, uint64_t n)
{
    watch->over += n;
}

bool watch_has_news(const struct watch *watch)
{
    return watch->over > watch->told_over || watch->lost > watch->told_lost;
}

void watch_tell(struct watch *watch)
{
    watch->told_over = watch->over;
    watch->told_lost = watch->lost;
}

uint64_t watch_missing(const struct watch *watch)
{
    uint64_t known =
        watch->lost > UINT64_MAX - watch->came ? UINT64_MAX : watch->came + watch->lost;
    return watch->seen > known ? watch->seen - known : 0;
}
