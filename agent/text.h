/* agent/text.h - strings of protobuf frames must be UTF-8, or the worker ends the VM.  File names
 * and clipped messages need not be.  Pure. */
#ifndef CL_AGENT_TEXT_H
#define CL_AGENT_TEXT_H

#include <stddef.h>

/* Copy `s`, cut to fit, with every byte that is not part of valid UTF-8 as \xHH. */
void text_escape(const char *s, char *out, size_t size);
/* Make a message valid in place: a bad byte becomes '?'. */
void text_repair(char *s);

#endif
