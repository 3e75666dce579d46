"""Pages: tables and plots of numbers computed elsewhere."""
