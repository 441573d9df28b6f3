/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_AGREE_H
#define PLAIT_RUNTIME_COMM_AGREE_H

#include "runtime/comm/comm.h"

/* Collective: whether all ranks have the same text, of lines "KEY=VALUE" whose
 * keys are the same everywhere. -1 with errno on all ranks if not: the lowest
 * rank that differs from rank 0 has in err both ranks, their hosts, the first
 * key that differs and both values. `text` NULL: this rank has no memory for
 * its own. */
int plait_agree_on_text(struct plait_comm *world, const char *text,
                        struct plait_error *err);

#endif
