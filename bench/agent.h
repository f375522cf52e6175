/* bench/agent.h - the agent of a monitor's guest, spoken to as a worker does.
 *
 * One thing at a time.  An agent that says something else than what is waited for ends the program.
 */
#ifndef CL_BENCH_AGENT_H
#define CL_BENCH_AGENT_H

#include "bench/monitors.h"
#include "worker/template.h"

void agent_await_hello(const struct monitor *r);

/* A ping may wait in the channel before there is an agent. */
void agent_say_ping(const struct monitor *r);
void agent_await_pong(const struct monitor *r);

/* So may an identity, fresh randomness and the time in it. */
void agent_say_identity(const struct monitor *r);
void agent_await_identity(const struct monitor *r);

/* The template's warm-ups, after an identity: of a VM that has booted its contexts' starts and the
 * rehearsal too, unless there is nobody to tell of that (worker/warmup.h). */
void agent_warm_up(const struct monitor *r, const struct template_manifest *m, bool boot,
                   void (*rehearse)(const struct monitor *r));

/* A cell in the context python of a template that has one, until its first byte of output. */
void agent_say_cell(const struct monitor *r);
void agent_await_byte(const struct monitor *r);
/* And to its end. */
void agent_await_end(const struct monitor *r);

#endif
