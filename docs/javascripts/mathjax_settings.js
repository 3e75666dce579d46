// arithmatex leaves formulas as \(...\) and \[...\]; nothing else on a page is to be read as one.
window.MathJax = {
  // Formulas are set when they come into view: a page of proofs has thousands.
  loader: { load: ["ui/lazy"] },
  tex: {
    inlineMath: [["\\(", "\\)"]],
    displayMath: [["\\[", "\\]"]],
    processEscapes: true,
    processEnvironments: true,
  },
  // The menu would fetch what explains formulas aloud; hidden MathML is there for screen readers without it.
  options: { ignoreHtmlClass: ".*|", processHtmlClass: "arithmatex", enableMenu: false },
};
