"""The few rules that the theme cannot say. Colours follow the theme's light or dark scheme by ``light-dark()``."""

from __future__ import annotations

import streamlit as st

BLUE = "#3f6fe0"
GREY = "#8b96aa"
RED = "#d23c2e"
AMBER = "#d08700"
GREEN = "#1f9d63"
SLATE = "#5f7090"
CLASS_COLOURS = ("#3f6fe0", "#149488", "#b07a1e", "#8a60dd", "#5f8f2e", "#a85f88", "#5c7690", "#2b93c9")

CSS = """
.gf-chips{display:flex;flex-wrap:wrap;gap:6px;align-items:center}
.gf-chip{display:inline-block;padding:1px 8px;border-radius:4px;font-size:12.5px;line-height:20px;white-space:nowrap;
 max-width:100%;overflow:hidden;text-overflow:ellipsis}
.gf-grey{background:light-dark(#eef1f6,#222d44);color:light-dark(#4d5a73,#b3bfd6)}
.gf-red{background:light-dark(#fdecea,#46201f);color:light-dark(#a61b12,#ffa79c)}
.gf-amber{background:light-dark(#fdf3e0,#40301a);color:light-dark(#8a4b00,#f3bd73)}
.gf-green{background:light-dark(#e6f5ed,#153526);color:light-dark(#14683f,#7ed9ab)}
.gf-blue{background:light-dark(#e8eefc,#1d2c52);color:light-dark(#2148b0,#a9c1ff)}
.gf-title{font-size:21px;line-height:1.3;font-weight:600;margin:2px 0 4px;overflow-wrap:anywhere}
.gf-big-title{font-size:25px;line-height:1.25;font-weight:600;margin:0 0 8px;overflow-wrap:anywhere}
.gf-h{font-size:15px;font-weight:600;margin:0 0 4px}
.gf-h .gf-soft{font-weight:400}
.gf-soft{color:light-dark(#66728a,#9aa7be)}
.gf-small{font-size:12.5px;line-height:1.5}
.gf-p{margin:0 0 6px;line-height:1.5;overflow-wrap:anywhere}
.gf-head{display:flex;justify-content:space-between;align-items:baseline;gap:8px;margin-bottom:8px}
.gf-name{font-weight:600;font-size:15px;min-width:0;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.gf-cardbox{container-type:inline-size}
.gf-card{display:grid;grid-template-columns:minmax(112px,1fr) max-content;gap:4px 14px;min-height:104px}
@container (max-width:330px){.gf-card{grid-template-columns:1fr}}
.gf-card .gf-v{overflow-wrap:normal;white-space:nowrap}
.gf-label{font-size:12.5px;color:light-dark(#66728a,#9aa7be)}
.gf-number{font-size:29px;line-height:1.2;font-weight:400;white-space:nowrap;letter-spacing:-.01em}
.gf-mid{font-size:23px;line-height:1.35}
.gf-mid.gf-word{font-size:17px;line-height:1.8}
.gf-two{min-height:38px}
.gf-number.gf-word{font-size:18px;line-height:1.9}
.gf-missed{color:light-dark(#a61b12,#ffa79c)}
.gf-rows{display:grid;grid-template-columns:max-content 1fr;gap:2px 10px;align-content:start;font-size:13.5px}
.gf-k{color:light-dark(#66728a,#9aa7be);white-space:nowrap}
.gf-v{font-weight:500;overflow-wrap:anywhere}
.gf-foot{font-size:12.5px;line-height:1.45;color:light-dark(#66728a,#9aa7be);height:38px;overflow:hidden;margin-top:6px}
.gf-lines{white-space:pre-line}
.gf-scroll{overflow-x:auto}
table.gf-table{border-collapse:collapse;width:100%;font-size:13px}
.gf-table th{text-align:left;font-weight:500;color:light-dark(#66728a,#9aa7be);padding:6px 12px 6px 0;white-space:nowrap;
 border-bottom:1px solid light-dark(#dfe4ee,#2a3650)}
.gf-table td{padding:6px 12px 6px 0;border-bottom:1px solid light-dark(#edf0f6,#202b42);vertical-align:top;
 overflow-wrap:break-word}
.gf-table tr:last-child td{border-bottom:0}
.gf-chain{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:14px 16px}
.gf-chain>div{border-left:2px solid light-dark(#dfe4ee,#2a3650);padding-left:10px}
.gf-key{display:inline-block;width:14px;height:3px;border-radius:2px;vertical-align:middle;margin-right:5px}
.gf-legend{display:flex;flex-wrap:wrap;gap:2px 18px;font-size:12.5px;color:light-dark(#66728a,#9aa7be)}
.gf-part{white-space:nowrap}
.gf-table a{color:light-dark(#2148b0,#a9c1ff);text-decoration:none}
.gf-table a:hover{text-decoration:underline}
[class*="st-key-gf-open"] a{background:light-dark(#2457d6,#3a66d8);border-radius:6px;justify-content:center;min-height:38px}
[class*="st-key-gf-open"] a:hover{background:light-dark(#1c48b6,#4a76e8)}
[class*="st-key-gf-open"] a p,[class*="st-key-gf-open"] a span{color:#fff!important}
.gf-empty{max-width:760px}
.gf-empty code{font-size:13px;padding:1px 5px;border-radius:4px;background:light-dark(#eef1f6,#222d44)}
@media (min-width:768px){[data-testid="stSidebar"]:not([aria-expanded="false"]){width:210px!important;min-width:210px!important}}
[data-testid="stMainBlockContainer"]{padding-left:2.5rem;padding-right:2.5rem}
@media (max-width:768px){[data-testid="stMainBlockContainer"]{padding-left:1rem;padding-right:1rem}
 .st-key-gf-controls{gap:8px!important}
 .st-key-gf-controls>[data-testid="stElementContainer"]:has([data-testid="stSelectbox"]){width:calc(33.3% - 6px)!important;
  min-width:0!important;flex:0 0 auto!important}
 .st-key-gf-controls [data-testid="stSelectbox"]{width:100%!important}}
[data-testid="stSidebar"] [data-testid="stSidebarHeader"]{height:3rem}
.gf-plot{display:grid;grid-template-columns:44px 1fr;gap:0 6px;margin-top:8px}
.gf-plot .gf-x{grid-column:2}
.gf-pane{position:relative;height:96px}
.gf-img{display:block;width:100%;height:100%}
.gf-lane{position:relative;height:16px}
.gf-pane .gf-lane{position:absolute;inset:0;height:auto}
.gf-lane>div{position:absolute;top:0;bottom:0}
.gf-next{margin-top:14px}
.gf-tall{height:190px}
.gf-low{height:74px}
.gf-effects .gf-heat-row{grid-template-columns:var(--names,132px) 1fr 172px}
.gf-ratios .gf-heat-row{grid-template-columns:var(--names,84px) 1fr 104px}
.gf-kinds .gf-heat-row{grid-template-columns:var(--names,132px) 1fr 44px}
.gf-row-value{font-size:12px;line-height:16px;white-space:nowrap;overflow:hidden;text-overflow:ellipsis;
 color:light-dark(#33415c,#c6d0e4)}
.gf-effect>div{position:absolute}
.gf-whisker{top:7px!important;bottom:auto!important;height:2px;background:light-dark(#66728a,#9aa7be)}
.gf-whisker.gf-strong{top:6px!important;height:4px;background:#3f6fe0}
.gf-dot{top:4px!important;bottom:auto!important;width:8px;height:8px;margin-left:-4px;border-radius:50%;background:#8b96aa}
.gf-dot.gf-strong{top:3px!important;width:10px;height:10px;margin-left:-5px;background:#3f6fe0}
.gf-one-line,.gf-two-line{width:0;border-left:1px solid rgba(128,140,165,.35)}
.gf-two-line{border-left:1px dashed light-dark(#66728a,#9aa7be)}
.gf-rate{background:rgba(63,111,224,.42);border-radius:0 3px 3px 0}
.gf-rate-strong{background:rgba(208,135,0,.62);border-radius:0 3px 3px 0}
.gf-hover:hover{background:rgba(128,140,165,.18)}
.gf-cell:hover{outline:1px solid light-dark(#33415c,#c6d0e4);z-index:1}
.gf-x{position:relative;height:18px;font-size:11px;color:light-dark(#7c889e,#93a0b8)}
.gf-x{container-type:inline-size}
@container (max-width:240px){.gf-x span:nth-child(even){display:none}}
.gf-x span{position:absolute;transform:translateX(-50%);top:2px;white-space:nowrap}
.gf-y{position:relative;font-size:11px;color:light-dark(#7c889e,#93a0b8)}
.gf-y span{position:absolute;right:0;transform:translateY(-50%);white-space:nowrap}
.gf-heat{display:grid;gap:3px}
.gf-heat-row{display:grid;grid-template-columns:var(--names,132px) 1fr;gap:8px;align-items:center}
.gf-row-name{font-size:11.5px;line-height:16px;text-align:right;white-space:nowrap;overflow:hidden;text-overflow:ellipsis;
 color:light-dark(#66728a,#9aa7be)}
.gf-squares{display:flex;flex-wrap:wrap;gap:3px}
.gf-square{width:15px;height:15px;border-radius:3px;display:inline-block}
.gf-square:hover{outline:1px solid light-dark(#33415c,#c6d0e4)}
.gf-none{border:1px dashed rgba(128,140,165,.45)}
.gf-event{border-left:1px dashed light-dark(#8a4b00,#f3bd73);cursor:help}
.gf-tick{width:2px;background:light-dark(#33415c,#c6d0e4)}
.gf-bar{background:rgba(128,140,165,.13);border-radius:3px}
.gf-answers{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px 18px;margin:8px 0 2px}
.gf-answers .gf-label{white-space:nowrap}
.gf-list{margin:4px 0 6px;padding-left:18px;line-height:1.5}
.gf-list li{overflow-wrap:anywhere}
.gf-scale{display:flex;align-items:center;gap:1px;justify-content:flex-end;font-size:11px;color:light-dark(#7c889e,#93a0b8)}
.gf-shade{width:11px;height:9px;display:inline-block}
.gf-shade:first-of-type{margin-left:6px}
.gf-shade:last-of-type{margin-right:6px}
.gf-bar-announced{background:#d08700}
.gf-bar-missed{background:#d23c2e}
.gf-bar-page{background:#5f7090}
.gf-bar-other{background:#8b96aa}
.gf-b0{background:rgba(120,145,190,0.13)}
.gf-b1{background:rgba(150,142,166,0.20)}
.gf-b2{background:rgba(175,138,144,0.29)}
.gf-b3{background:rgba(188,133,127,0.43)}
.gf-b4{background:rgba(202,128,110,0.57)}
.gf-b5{background:rgba(215,123,93,0.71)}
.gf-b6{background:rgba(215,112,78,0.80)}
.gf-b7{background:rgba(200,95,67,0.84)}
.gf-b8{background:rgba(186,79,55,0.88)}
.gf-b9{background:rgba(172,62,43,0.92)}
.gf-b10{background:rgba(157,46,32,0.96)}
.gf-b11{background:rgba(143,29,20,1.00)}
"""


def inject() -> None:
    """Put the rules on the page; once per run, from the router."""
    st.html(f"<style>{CSS}</style>")
