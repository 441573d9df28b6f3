/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_VIEW_PAGE_H
#define PLAIT_RUNTIME_VIEW_PAGE_H

/* page.html, turned into C by the Makefile. The data of the runs replace
 * @DATA@. */
extern const char plait_report_page[];

#endif
