"""PrivacyEngine: private training in a loop of one's own."""
