/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SPANK_PLUGIN_TWICE_H
#define PLAIT_SPANK_PLUGIN_TWICE_H

/* plugstack.conf may load the plugin twice, from two files: the one that it
 * lists first does the work. */

/* This file. */
const char *plait_twice_own(void);
/* Another file of this plugin in this process, NULL: there is none. *first:
 * this one was loaded before it. */
const char *plait_twice_other(int *first);

#endif
