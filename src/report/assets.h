/* Files that the build puts into the program: cmake/embed.cmake makes their definitions. */
#ifndef EBB_REPORT_ASSETS_H
#define EBB_REPORT_ASSETS_H

#include <stddef.h>

struct ebb_asset {
    const unsigned char *bytes;
    size_t size;
};

extern const struct ebb_asset ebb__asset_style;  /* page/page.css */
extern const struct ebb_asset ebb__asset_charts; /* page/charts.html: what each run's charts are */
extern const struct ebb_asset ebb__asset_script; /* page/page.js and the parts that it needs */
extern const struct ebb_asset ebb__asset_dygraphs; /* of the distribution, with its style */
extern const struct ebb_asset ebb__asset_dygraphs_style;
extern const struct ebb_asset ebb__asset_dygraphs_licence;

#endif
