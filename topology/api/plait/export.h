/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_EXPORT_H
#define PLAIT_EXPORT_H

/* What libplait.so exports; everything else in it is hidden. */
#if defined(__GNUC__)
#define PLAIT_EXPORT __attribute__((visibility("default")))
#else
#define PLAIT_EXPORT
#endif

#endif
