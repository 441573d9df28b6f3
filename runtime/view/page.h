/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_VIEW_PAGE_H
#define PLAIT_RUNTIME_VIEW_PAGE_H

/* page.html, made into C by the Makefile. @DATA@ stands where the data of the
 * runs goes. */
extern const char plait_report_page[];

#endif
