/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_VIEW_PICTURE_H
#define PLAIT_RUNTIME_VIEW_PICTURE_H

#include "runtime/view/history.h"
#include "runtime/view/screen.h"

/* Draws what plait-watch shows of a run; NULL: out of memory. */
struct plait_screen *plait_picture_draw(const struct plait_history *h,
                                        int width, int height);

#endif
