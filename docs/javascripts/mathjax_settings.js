// arithmatex leaves formulas as \(...\) and \[...\]; nothing else on a page is to be read as one.
window.MathJax = {
  tex: {
    inlineMath: [["\\(", "\\)"]],
    displayMath: [["\\[", "\\]"]],
    processEscapes: true,
    processEnvironments: true,
  },
  // The menu would fetch what explains formulas aloud; hidden MathML is there for screen readers without it.
  options: { ignoreHtmlClass: ".*|", processHtmlClass: "arithmatex", enableMenu: false },
};
